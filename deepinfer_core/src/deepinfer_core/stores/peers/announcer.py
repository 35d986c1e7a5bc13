"""How do registrars come to know what a member has, and keep knowing it?

New blocks are announced as soon as the thread gets to it, all blocks again with each beat. Nobody
waits for any of it.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from deepinfer_core.interfaces.kv_upkeep import BlockFacts

__all__ = ["BEATS", "Announcer"]

BEATS = 3
"""Beats for which an announcement holds: one or two may be lost."""

_AT_ONCE = 4096
"""Keys in one announcement."""

Survey = Callable[[str, bytes, int], list[BlockFacts]]
Tell = Callable[[str, str, list[bytes]], None]


class Announcer:
    """A thread that tells registrars of blocks.

    Args:
        groups: names of the groups.
        survey: blocks of a group behind a key, at most so many, in order of their keys.
        tell: tells one registrar that keys of a group are here; it never raises.
        registrars: of a key.
        beat_s: seconds between two announcements of everything.
    """

    def __init__(
        self,
        groups: Iterable[str],
        *,
        survey: Survey,
        tell: Tell,
        registrars: Callable[[bytes], Sequence[str]],
        beat_s: float,
    ) -> None:
        self._groups = tuple(groups)
        self._survey, self._tell, self._registrars = survey, tell, registrars
        self._beat_s = beat_s
        self._changed = threading.Condition()
        self._news: list[tuple[str, bytes]] = []
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="deepinfer-peers", daemon=True)
        self._thread.start()

    def announce(self, group: str, keys: Iterable[bytes]) -> None:
        """Blocks have just been stored."""
        with self._changed:
            self._news += [(group, key) for key in keys]
            self._changed.notify()

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        beat_at_s = time.monotonic() + self._beat_s
        while True:
            with self._changed:
                while not (self._news or self._is_closed):
                    left_s = beat_at_s - time.monotonic()
                    if left_s <= 0:
                        break
                    self._changed.wait(left_s)
                if self._is_closed:
                    return
                news, self._news = self._news, []
            self._tell_all(news)
            if time.monotonic() >= beat_at_s:
                self._repeat()
                beat_at_s = time.monotonic() + self._beat_s

    def _repeat(self) -> None:
        """Everything again, in pieces."""
        for group in self._groups:
            after = b""
            while not self._is_closed and (facts := self._survey(group, after, _AT_ONCE)):
                self._tell_all([(group, fact.key) for fact in facts])
                after = facts[-1].key

    def _tell_all(self, blocks: Sequence[tuple[str, bytes]]) -> None:
        for start in range(0, len(blocks), _AT_ONCE):
            told: defaultdict[tuple[str, str], list[bytes]] = defaultdict(list)
            for group, key in blocks[start : start + _AT_ONCE]:
                for member in self._registrars(key):
                    told[member, group].append(key)
            for (member, group), keys in told.items():
                self._tell(member, group, keys)
