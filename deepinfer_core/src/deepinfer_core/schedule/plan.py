"""What does the scheduler tell the runner to do in one step?

A plan speaks of token ids, positions and page numbers; it holds no tensor. Source of the block and
slot conventions: block 0 and state slot 0 are dummies.

Both are named tuples because a step of several hundred sequences makes as many of them, and a
frozen dataclass takes four times as long to make.
"""

from typing import NamedTuple

__all__ = ["UNKNOWN_TOKEN", "Copy", "Prefix", "SequenceStep", "StepPlan"]

UNKNOWN_TOKEN = -1
"""Stands for a token that only the device knows: one that the step before draws, or a draft."""


class Copy(NamedTuple):
    """One page whose bytes are copied to another one.

    Attributes:
        source: page to read.
        destination: page to overwrite.
    """

    source: int
    destination: int


class Prefix(NamedTuple):
    """Tokens in front of the first row that a sequence feeds, because they are cached.

    Attributes:
        place: of the sequence.
        token_ids: from position 0 on.
    """

    place: int
    token_ids: tuple[int, ...]


class SequenceStep(NamedTuple):
    """The rows that one sequence feeds in a step.

    Where the step before verifies drafts of the sequence, only the device knows how many of them
    are kept. Then all rows are unknown, and they begin at ``start`` only if all were kept: one
    position earlier for each that was not.

    Attributes:
        sequence_id: the engine's number of the sequence.
        start: absolute position of the first row; the highest that it may have.
        token_ids: ids of the rows, at positions ``start`` and following; the last may be
            ``UNKNOWN_TOKEN``, or that of a sequence with ``place`` all.
        history: the ids at ``start - 1``, ``start - 2``, ``start - 3``; -1 where there is none.
        block_ids: the sequence's blocks so far, enough for all rows.
        state_slot: the sequence's state slot.
        wants_token: whether the last row's logits are sampled.
        scored_rows: leading rows whose logits are wanted too, to score the token behind each, or
            because drafts are fed behind them; not the last row if it is sampled.
        drawn_index: place of the unknown token among the sampled rows of the step before, or of the
            first of its rows there, if it verifies drafts; -1 if all tokens are known.
        cached_end: rows before this position are fed again and write no entries.
        valid_start: first position whose window keys exist.
        keep_from: first position that a truncated decoder half keeps.
        place: its place among the sequences for which drafts are kept; 0: none are.
        open_rows: drafts that the step before verifies, if its tokens are unknown.
        most_rows: that the device may give it, where it shares out the rows of the step; see
            ``StepPlan.shares``.
    """

    sequence_id: int
    start: int
    token_ids: tuple[int, ...]
    history: tuple[int, int, int]
    block_ids: tuple[int, ...]
    state_slot: int
    wants_token: bool
    scored_rows: int = 0
    drawn_index: int = -1
    cached_end: int = 0
    valid_start: int = 0
    keep_from: int = 0
    place: int = 0
    open_rows: int = 0
    most_rows: int = 0


class StepPlan(NamedTuple):
    """All sequences of one step, in row order, and what is copied around it.

    Attributes:
        sequences: who feeds which rows.
        block_copies: blocks to copy before the rows are fed.
        restored_slots: state slots to copy before the rows are fed.
        saved_slots: state slots to copy when the rows have left their states.
        prefixes: of sequences that enter with the step, where a drafter reads tokens.
        shares: factors of the survival of drafts, one for each of a round, where the device may
            share out the rows of the step once more; None: they are as planned.
    """

    sequences: tuple[SequenceStep, ...]
    block_copies: tuple[Copy, ...] = ()
    restored_slots: tuple[Copy, ...] = ()
    saved_slots: tuple[Copy, ...] = ()
    prefixes: tuple[Prefix, ...] = ()
    shares: tuple[float, ...] | None = None

    @property
    def rows(self) -> int:
        """Rows of the step over all sequences."""
        return sum(len(step.token_ids) for step in self.sequences)

    def wanted_rows(self) -> list[int]:
        """Rows of the step whose logits are wanted, ascending."""
        rows: list[int] = []
        first = 0
        for step in self.sequences:
            rows += range(first, first + step.scored_rows)
            first += len(step.token_ids)
            if step.wants_token:
                rows.append(first - 1)
        return rows
