"""To which sizes are decode steps padded, so that few recordings serve them all?

A step of so many rows up to such a position is padded to a *rung*. Where padding costs next to
nothing and recording much, rungs are few and known beforehand. Where a row of padding costs as much
as any row and recording little, they are near: an eighth more at most.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from deepinfer_core.schedule.plan import SequenceStep, StepPlan

__all__ = ["FewRungs", "Ladder", "NearRungs", "Rung", "reach_rungs", "row_rungs"]

_LOWEST_REACH = 4096
_REACH_FACTOR = 8
"""Three recordings a row count serve a context of a million tokens; scores are as wide as reach."""

_NEAREST_REACH = 256
"""Scores are at least so wide where rungs are near: wider ones of a short text cost little."""


@dataclass(frozen=True, slots=True)
class Rung:
    """The size of one recording.

    Attributes:
        rows: of all sequences together.
        reach: highest position that a sequence may begin at, whole blocks.
        rows_each: most rows of a sequence.
    """

    rows: int
    reach: int
    rows_each: int = 1


def row_rungs(most: int) -> list[int]:
    """Row counts of recordings up to ``most``: powers of two and what lies halfway, then ``most``.

    A step is padded by less than a half, and the ladder has two rungs for each doubling.
    """
    powers = [1 << power for power in range(most.bit_length())]
    halves = [3 * power for power in powers]
    return sorted({size for size in (*powers, *halves) if size < most} | {most})


def reach_rungs(most_tokens: int, block_tokens: int) -> list[int]:
    """Highest positions of recordings: whole blocks, the last for texts of ``most_tokens``.

    Args:
        most_tokens: longest text, at least 1.
        block_tokens: tokens of a block, a multiple of every entry's tokens.
    """
    last = _in_blocks(most_tokens, block_tokens)
    rungs, reach = [], _in_blocks(_LOWEST_REACH, block_tokens)
    while reach < last:
        rungs.append(reach)
        reach *= _REACH_FACTOR
    return [*rungs, last]


class Ladder(ABC):
    """Finds the rung of a step.

    Args:
        max_sequences: most sequences.
        max_tokens: longest text.
        block_tokens: tokens of a block.
        rows_each: most rows of a sequence, fewer than a block: 1, or as many as are verified at
            once. How rows are spread over sequences does not matter.

    Attributes:
        max_rows: most rows of a step.
    """

    def __init__(
        self, max_sequences: int, max_tokens: int, block_tokens: int, *, rows_each: int = 1
    ) -> None:
        self.max_sequences = max_sequences
        self.max_rows = max_sequences * rows_each
        self.rows_each = rows_each
        self.block_tokens = block_tokens
        self._last = _in_blocks(max_tokens, block_tokens)

    def rung_of(self, plan: StepPlan) -> Rung | None:
        """The smallest rung that can do a step; None if none can."""
        steps = plan.sequences
        if len(steps) > self.max_sequences or not all(map(self._decodes, steps)):
            return None
        highest = max(step.start for step in steps)
        blocks = max(len(step.block_ids) for step in steps) - 1
        wanted = max(highest, blocks * self.block_tokens)
        if wanted > self._last:
            return None
        return self._padded(plan.rows, wanted, is_bare=plan.rows == len(steps))

    def _decodes(self, step: SequenceStep) -> bool:
        """Whether a sequence feeds few rows, wants the logits of all, and replays nothing."""
        return (
            step.wants_token
            and step.scored_rows + 1 == len(step.token_ids) <= self.rows_each
            and max(step.cached_end, step.valid_start) <= step.start
        )

    @abstractmethod
    def _padded(self, rows: int, reach: int, *, is_bare: bool) -> Rung:
        """The rung of what is within the limits; bare: every sequence feeds one row."""


class FewRungs(Ladder):
    """Two row counts for each doubling, three reaches for a million tokens.

    Args:
        max_sequences, max_tokens, block_tokens, rows_each: see ``Ladder``.
        row_counts: others than these, the largest ``max_rows``.
    """

    def __init__(
        self,
        max_sequences: int,
        max_tokens: int,
        block_tokens: int,
        *,
        rows_each: int = 1,
        row_counts: Sequence[int] | None = None,
    ) -> None:
        super().__init__(max_sequences, max_tokens, block_tokens, rows_each=rows_each)
        self._rows = row_rungs(self.max_rows) if row_counts is None else sorted(row_counts)
        self._reaches = reach_rungs(max_tokens, block_tokens)

    @property
    def rungs(self) -> list[Rung]:
        """All of them, the largest first: memory and plans of the first serve all others."""
        rows, reaches = self._rows[::-1], self._reaches[::-1]
        return [Rung(count, reach, self.rows_each) for count in rows for reach in reaches]

    def _padded(self, rows: int, reach: int, *, is_bare: bool) -> Rung:
        return Rung(
            self._rows[bisect_left(self._rows, rows)],
            self._reaches[bisect_left(self._reaches, reach)],
            self.rows_each,
        )


class NearRungs(Ladder):
    """Every row count up to 16 and every eighth of a doubling behind; the same for reaches.

    Steps in which every sequence feeds one row have rungs of their own, since less is to be done in
    them: rows of one sequence need one another's keys.
    """

    def _padded(self, rows: int, reach: int, *, is_bare: bool) -> Rung:
        near = max(_NEAREST_REACH, _rounded_up(reach))
        return Rung(
            min(_rounded_up(rows), self.max_rows),
            min(_in_blocks(near, self.block_tokens), self._last),
            1 if is_bare else self.rows_each,
        )


def _rounded_up(size: int) -> int:
    """To an eighth more at most, so that few numbers are left."""
    step = 1 << max(size.bit_length() - 4, 0)
    return -(-size // step) * step


def _in_blocks(tokens: int, block_tokens: int) -> int:
    return -(-tokens // block_tokens) * block_tokens
