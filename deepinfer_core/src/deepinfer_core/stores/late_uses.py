"""Which blocks were used that some store has not heard of?

A block that is read in one place counts as used there. Where else it lies it would grow old all the
same, so its uses are told there too, once a minute. May be forgotten.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

__all__ = ["LateUses"]

_MOST = 1 << 16
"""Uses that are remembered; more are forgotten."""


class LateUses:
    """Uses that one store is yet to be told of; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: dict[str, dict[bytes, None]] = {}

    def note(self, group: str, keys: Iterable[bytes]) -> None:
        """Remember uses."""
        with self._lock:
            known = self._keys.setdefault(group, {})
            for key in keys:
                if len(known) < _MOST:
                    known[key] = None

    def take(self) -> Mapping[str, list[bytes]]:
        """What there is, by group; it is forgotten."""
        with self._lock:
            taken, self._keys = self._keys, {}
        return {group: list(keys) for group, keys in taken.items()}
