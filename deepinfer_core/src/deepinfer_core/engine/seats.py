"""Where do answers go that coroutines wait for, and how many may be in work?

The engine's thread fills inboxes and frees places, and wakes whom that concerns once a turn, with
one call to each loop.
"""

from __future__ import annotations

from deepinfer_core.engine.inbox import Inbox
from deepinfer_core.engine.room import Room
from deepinfer_core.engine.waiters import Waiter, wake

__all__ = ["Seats"]


class Seats:
    """Places, the inboxes of those who have one, and who is to be woken.

    Args:
        places: answers in work at once.

    Attributes:
        room: the places.
    """

    def __init__(self, places: int) -> None:
        self.room = Room(places)
        self._woken: list[Waiter] = []

    def new_inbox(self, samples: int) -> Inbox:
        """Where answers go; their places come free as they end."""
        return Inbox(samples, self._free, self._woken.append)

    def give_back(self, count: int) -> None:
        """Give places back that no request came to have; from any thread."""
        wake(self.room.give_back(count))

    def wake(self) -> None:
        """Wake whoever got something; called by the engine's thread."""
        wake(self._woken)
        self._woken.clear()

    def _free(self, count: int) -> None:
        self._woken += self.room.give_back(count)
