"""Which blocks does an engine take for stored, so that it does not store them again and again?"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence, Set

__all__ = ["StoredKeys"]

_MOST_KEYS = 1 << 17
"""With its time a key takes some 150 bytes."""

_FRESH_S = 600.0
"""Behind it a key counts as unknown: the store may have lost the block; and where it has not,
being offered it again tells it that the block is in use."""


class StoredKeys:
    """Keys that were handed to a store or came from it, those of the last minutes.

    Args:
        clock_s: monotonic clock.
        kept_s: seconds for which the store keeps a block that nobody uses.
    """

    def __init__(self, clock_s: Callable[[], float], kept_s: float = _FRESH_S) -> None:
        self._clock_s = clock_s
        self._fresh_s = min(_FRESH_S, kept_s)
        self._since_s: OrderedDict[bytes, float] = OrderedDict()

    def __contains__(self, key: bytes) -> bool:
        """Whether a block need not be offered."""
        since_s = self._since_s.get(key)
        return since_s is not None and self._clock_s() - since_s < self._fresh_s

    def reach(self, keys: Sequence[bytes]) -> int:
        """How many leading keys the store seemed to have, however long ago; 0: none, or forgotten.

        It is where a search of the store begins.
        """
        known = self._since_s
        return next((place for place in range(len(keys), 0, -1) if keys[place - 1] in known), 0)

    def add(self, key: bytes) -> None:
        """A block is about to be stored, or is known to be."""
        self._since_s[key] = self._clock_s()
        self._since_s.move_to_end(key)
        if len(self._since_s) > _MOST_KEYS:
            self._since_s.popitem(last=False)

    def discard(self, key: bytes) -> None:
        """It is not."""
        self._since_s.pop(key, None)

    def keep_only(self, keys: Set[bytes]) -> None:
        """All others may be lost."""
        kept = [pair for pair in self._since_s.items() if pair[0] in keys]
        self._since_s = OrderedDict(kept)
