"""Whose turn is it, of all who wait for one of a few places?

The next place is for the caller who has the fewest; of those with equally many, for the one whose
last turn is longest ago; so it goes on among the users of that caller. Of one user the oldest comes
first. Nothing is remembered about those of whom nothing waits and nothing runs.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Ticket", "Turns"]


@dataclass(slots=True, eq=False)
class Ticket:
    """One who waits or has a place.

    Attributes:
        caller: on whose behalf.
        user: of that caller.
        has_place: whether its turn has come.
    """

    caller: str
    user: str
    has_place: bool = False


@dataclass(slots=True)
class _Group:
    """What is known of one caller, or of one user of a caller.

    Attributes:
        tickets: that wait or have places.
        places: that it has.
        last_turn: number of its last turn; 0: it had none.
    """

    tickets: int = 0
    places: int = 0
    last_turn: int = 0


T = TypeVar("T", bound=Ticket)


class Turns(Generic[T]):
    """Gives out places.

    Args:
        places: how many there are.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: dict[T, None] = {}
        self._groups: dict[Hashable, _Group] = {}
        self._turn = 0

    @property
    def waiting(self) -> tuple[T, ...]:
        """Those without a place, oldest first."""
        return tuple(self._waiting)

    def join(self, ticket: T) -> None:
        """Begin to wait."""
        self._waiting[ticket] = None
        for group in self._groups_of(ticket):
            group.tickets += 1

    def next(self) -> T | None:
        """Whose turn it is now; it has a place from here on. None: there is none, or nobody."""
        if not self._free or not self._waiting:
            return None
        # The first of equal ones is the oldest.
        ticket = min(self._waiting, key=self._rank)
        del self._waiting[ticket]
        ticket.has_place = True
        self._free -= 1
        self._turn += 1
        for group in self._groups_of(ticket):
            group.places += 1
            group.last_turn = self._turn
        return ticket

    def leave(self, ticket: T) -> None:
        """Wait no longer, or give back the place."""
        self._waiting.pop(ticket, None)
        self._free += ticket.has_place
        for name, group in zip(_names(ticket), self._groups_of(ticket), strict=True):
            group.tickets -= 1
            group.places -= ticket.has_place
            if not group.tickets:
                del self._groups[name]

    def _rank(self, ticket: Ticket) -> tuple[int, ...]:
        return tuple(
            number
            for group in self._groups_of(ticket)
            for number in (group.places, group.last_turn)
        )

    def _groups_of(self, ticket: Ticket) -> list[_Group]:
        return [self._groups.setdefault(name, _Group()) for name in _names(ticket)]


def _names(ticket: Ticket) -> tuple[Hashable, Hashable]:
    return ticket.caller, (ticket.caller, ticket.user)
