"""How many answers may be in work, and who is next when there is room?

First come, first served: a request that needs many places is not overtaken by small ones.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from threading import RLock

from deepinfer_core.engine.waiters import Waiter, wake
from deepinfer_core.errors import EngineBusy, RequestError

__all__ = ["Room"]


@dataclass(slots=True, eq=False)
class _Seeker:
    waiter: Waiter
    count: int
    has_place: bool = False


class Room:
    """A fixed number of places; tasks of any loop take them, any thread gives them back.

    Args:
        places: how many, at least one.
    """

    def __init__(self, places: int) -> None:
        self.places = places
        self._used = 0
        self._seekers: deque[_Seeker] = deque()
        # Reentrant: a coroutine that is collected as garbage, in any thread, leaves the seekers.
        self._lock = RLock()

    @property
    def used(self) -> int:
        """Places that are taken."""
        return self._used

    def check(self, count: int) -> None:
        """Refuse what would never find room.

        Raises:
            RequestError: there are not so many places.
        """
        if count > self.places:
            raise RequestError(
                f"n is {count}, and at most {self.places} answers may be in work",
                hint="lower n, or raise engine.max_queued",
            )

    async def take(self, count: int, *, wait: bool = True) -> None:
        """Take places, all at once.

        Args:
            count: how many.
            wait: for room; otherwise it is there now or the request is refused.

        Raises:
            RequestError: there are not so many places.
            EngineBusy: ``wait`` is False and there is no room now.
        """
        self.check(count)
        with self._lock:
            if not self._seekers and self._used + count <= self.places:
                self._used += count
                return
            if not wait:
                raise EngineBusy(
                    f"{self._used} answers are in work, of {self.places} that may be",
                    hint="ask again later, or raise engine.max_queued",
                )
            seeker = _Seeker(Waiter.here(), count)
            self._seekers.append(seeker)
        try:
            await seeker.waiter.future
        except BaseException:
            wake(self._leave(seeker))
            raise

    def give_back(self, count: int) -> list[Waiter]:
        """Give places back.

        Returns:
            Whom the caller has to wake.
        """
        with self._lock:
            self._used -= count
            return self._seat()

    def _leave(self, seeker: _Seeker) -> list[Waiter]:
        """One who was cancelled, perhaps with a place that it did not learn of."""
        with self._lock:
            if seeker.has_place:
                self._used -= seeker.count
            elif seeker in self._seekers:
                self._seekers.remove(seeker)
            return self._seat()

    def _seat(self) -> list[Waiter]:
        seated = []
        while self._seekers and self._used + self._seekers[0].count <= self.places:
            seeker = self._seekers.popleft()
            self._used += seeker.count
            seeker.has_place = True
            seated.append(seeker.waiter)
        return seated
