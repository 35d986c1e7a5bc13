"""Which blocks lack fragments, and which of them is made whole first?

Those that would be lost with one fragment more; then those that somebody has read or written since
it was noticed, the last one first; then what only a scrub has seen.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from enum import IntEnum

__all__ = ["Haste", "RepairQueue"]

_MOST = 1 << 16

_Name = tuple[str, bytes]
"""Group and key."""


class Haste(IntEnum):
    """How soon a block is repaired; the smaller the sooner."""

    IN_DANGER = 0
    USED = 1
    SEEN = 2


class RepairQueue:
    """Blocks that lack fragments, or have some that do not belong to them; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Haste, OrderedDict[_Name, int]] = {
            haste: OrderedDict() for haste in Haste
        }
        self._haste_of: dict[_Name, Haste] = {}

    def __len__(self) -> int:
        return len(self._haste_of)

    def add(self, group: str, key: bytes, haste: Haste, *, visits: int = 0) -> None:
        """Have a block looked at; the least urgent of more than can be remembered are forgotten."""
        name = (group, key)
        with self._lock:
            known = self._haste_of.get(name)
            if known is None and len(self._haste_of) >= _MOST:
                last = max(one for one in Haste if self._waiting[one])
                if last < haste:
                    return
                del self._haste_of[self._waiting[last].popitem()[0]]
            if known is not None:
                haste = min(haste, known)
                visits = max(visits, self._waiting[known][name])
                if haste != known or haste == Haste.USED:
                    del self._waiting[known][name]
            self._haste_of[name] = haste
            self._waiting[haste][name] = visits

    def note_uses(self, group: str, keys: Iterable[bytes]) -> None:
        """Some blocks were used, of which some may be waiting."""
        if not self._haste_of:
            return
        for key in keys:
            if self._haste_of.get((group, key)) == Haste.SEEN:
                self.add(group, key, Haste.USED)

    def is_used(self, group: str, key: bytes) -> bool:
        """Whether a block waits that somebody uses, or that is in danger."""
        return self._haste_of.get((group, key), Haste.SEEN) != Haste.SEEN

    def forget(self, group: str, key: bytes) -> None:
        """A block is gone."""
        with self._lock:
            haste = self._haste_of.pop((group, key), None)
            if haste is not None:
                del self._waiting[haste][group, key]

    def take(self, most: int) -> Sequence[tuple[str, bytes, int]]:
        """The next blocks of one group, and how often each was found beyond repair before."""
        taken: list[tuple[str, bytes, int]] = []
        with self._lock:
            for haste, waiting in self._waiting.items():
                while waiting and len(taken) < most:
                    newest_first = haste == Haste.USED
                    (group, key), visits = name, _ = waiting.popitem(last=newest_first)
                    if taken and group != taken[0][0]:
                        waiting[name] = visits
                        waiting.move_to_end(name, last=newest_first)
                        return taken
                    del self._haste_of[name]
                    taken.append((group, key, visits))
        return taken
