"""How many leading blocks of a chain are there, in few questions?

Writers store a chain from its beginning and stores lose it from its end, so what is there is nearly
always one run. Where it is known how many blocks were there lately, the first question is about the
last of them and the next one; else about blocks 1, 2, 4, 8 ... and the last. Each further one is
about a few between the last that was there and the first that was not. Where a chain has holes the
answer may be too long, never too short, and loading finds that out. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from deepinfer_core.interfaces.kv_store import Outcome

__all__ = ["FAN_OUT", "Gallop", "Match", "match"]

FAN_OUT = 15
"""Probes of a question behind the first: they leave a sixteenth of what was open."""


class Match(NamedTuple):
    """What is known of a chain.

    Attributes:
        blocks: leading ones that seem to be there.
        reason: empty, or why it is not known of more: ``timeout``, ``unavailable``.
        probes: blocks that were asked for.
    """

    blocks: int
    reason: str
    probes: int


class Gallop:
    """One search.

    Args:
        count: blocks of the chain.
        expected: leading ones that are likely there; 0 or less: nobody knows.

    Attributes:
        found: leading blocks, of which all that were asked for are there.
    """

    def __init__(self, count: int, expected: int = 0) -> None:
        self.found = 0
        self._expected = expected
        self._end = count
        self._asked: list[int] = []
        self._is_first = True

    def positions(self) -> list[int]:
        """What to ask for next, ascending; nothing: the search is over."""
        open_blocks = self._end - self.found
        if self._is_first and self._expected > 0:
            last = min(self._expected, self._end) - 1
            self._asked = [one for one in (last, last + 1) if 0 <= one < self._end]
        elif self._is_first and open_blocks > FAN_OUT:
            powers = [(1 << step) - 1 for step in range(open_blocks.bit_length())]
            self._asked = sorted({*(one for one in powers if one < self._end), self._end - 1})
        else:
            parts = min(FAN_OUT, open_blocks) + 1
            self._asked = [self.found + step * open_blocks // parts for step in range(1, parts)]
        self._is_first = False
        return self._asked

    def tell(self, is_there: Sequence[bool]) -> None:
        """The answer to the last question."""
        for position, there in zip(self._asked, is_there, strict=True):
            if not there:
                self._end = position
                return
            self.found = position + 1


def match(
    find: Callable[[list[bytes]], list[Outcome]], keys: Sequence[bytes], *, expected: int = 0
) -> Match:
    """Search a chain; what nobody knows in time is taken for not there.

    Args:
        find: asks a store.
        keys: of the chain.
        expected: see ``Gallop``.
    """
    gallop, probes = Gallop(len(keys), expected), 0
    while positions := gallop.positions():
        outcomes = find([keys[one] for one in positions])
        probes += len(positions)
        gallop.tell([one.status == "hit" for one in outcomes])
        bad = [one.status for one in outcomes if one.status not in ("hit", "miss")]
        if bad:
            return Match(gallop.found, bad[0], probes)
    return Match(gallop.found, "", probes)
