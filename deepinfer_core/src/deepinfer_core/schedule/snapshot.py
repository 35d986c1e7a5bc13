"""What does the scheduling policy look at, and what does it answer?

A snapshot is everything the policy may know; a decision is everything it may ask for. The engine
carries a decision out in this order: it takes blocks and slot from the preempted, gives the
admitted their slot and lets them hold the cached blocks that they take over, and only then takes
new blocks for the shares; so no new block is one that an admitted sequence counts on.

What is made anew for every sequence in every step is a ``NamedTuple``, not a frozen dataclass: with
256 sequences running, scheduler and outputs have a millisecond a step for all they do, and a frozen
dataclass takes several times as long to make.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from deepinfer_core.schedule.rank import Rank

__all__ = ["Decision", "Limits", "SequenceView", "Share", "Snapshot", "StepKind"]

StepKind = Literal["prefill", "decode", "mixed", "idle"]
"""``decode``: only rows of running sequences with one row pending. ``prefill``: only chunks, the
rows of all others; the first rows of an admitted sequence are a chunk, however few they are.
``mixed``: both. ``idle``: no rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes that hold for the life of an engine.

    Attributes:
        max_rows: rows of one step, prompts and decodes together; each running sequence has room for
            ``rows_each`` in it.
        max_sequences: sequences that hold a state slot at the same time.
        block_tokens: tokens in one block.
        usable_blocks: blocks that sequences can hold, the dummy block not counted. They must hold
            any one sequence at its longest.
        mixes: chunks and decode rows may share a step.
        rows_each: most rows that a decoding sequence feeds: the last token that is certain, and
            drafts of those behind it.
    """

    max_rows: int
    max_sequences: int
    block_tokens: int
    usable_blocks: int
    mixes: bool = True
    rows_each: int = 1

    def __post_init__(self) -> None:
        """Refuse sizes under which a running sequence could be left without a row for ever.

        Raises:
            ValueError: a size is not positive, or a step has fewer rows than running sequences.
        """
        smallest = min(
            *(self.max_rows, self.max_sequences, self.block_tokens, self.usable_blocks),
            self.rows_each,
        )
        if smallest < 1:
            raise ValueError(f"every limit must be at least 1, found {self}")
        if self.max_rows < self.max_sequences * self.rows_each:
            raise ValueError(
                f"a step of {self.max_rows} rows cannot serve {self.max_sequences} sequences of "
                f"{self.rows_each} each"
            )

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold ``tokens`` tokens."""
        return -(-tokens // self.block_tokens)

    def lacking(self, known_tokens: int, block_count: int) -> int:
        """Blocks that a sequence with ``block_count`` lacks for its tokens and the next one."""
        return max(0, self.blocks_for(known_tokens + 1) - block_count)

    def may_preempt(self, running_count: int, free_blocks: int) -> bool:
        """Whether a step could take blocks from a running sequence.

        A sequence with n rows needs at most one new block and n / ``block_tokens``. If False,
        ``idle_blocks`` of running sequences is not looked at.
        """
        return free_blocks < running_count + self.max_rows // self.block_tokens


class SequenceView(NamedTuple):
    """One sequence as the policy sees it.

    Attributes:
        sequence_id: the engine's number.
        known_tokens: prompt and output tokens, drawn ones whose ids are still on the device
            included.
        computed_tokens: rows launched so far; of a waiting sequence, where it would resume if it
            were admitted now. Below ``known_tokens``; a running sequence may have them equal: its
            last row is launched, and it only holds what it holds until the result is there. Such a
            sequence is neither served nor preempted.
        block_count: blocks it holds, enough for ``computed_tokens``; of a waiting sequence, cached
            blocks that it would take over.
        idle_blocks: of ``block_count``, those that nobody else holds. Of a waiting sequence they
            are counted in ``free_blocks`` now; of a running one they will be once it is preempted.
            Fewer than there are is safe, but may cost more preemptions than needed. Of running
            sequences only looked at if ``Limits.may_preempt``.
        stop_at: above ``computed_tokens``: a chunk may end there but not pass it, because the state
            at this position is to be kept.
        is_ready: of a waiting sequence: may be admitted now. One that is not, such as one whose
            last drawn token is still on the device, is passed over and holds up nobody.
        rank: its place in the order, to compare a running with a waiting sequence; of two equal
            ranks the running sequence goes first.
        draft_rows: of a running sequence with one known token to feed: rows of drafts to feed
            behind it, if there is room; at most ``rows_each`` - 1, and none in front of a
            ``stop_at``.
    """

    sequence_id: int
    known_tokens: int
    computed_tokens: int
    block_count: int
    idle_blocks: int = 0
    stop_at: int | None = None
    is_ready: bool = True
    rank: Rank = (0.0, 0)
    draft_rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The engine's state between two steps.

    Attributes:
        limits: fixed sizes.
        running: sequences that hold a slot, in order of rank.
        waiting: sequences that hold nothing, in order of rank. Either of the two may hold the first
            of all. The first ``max_sequences`` that are ready are enough.
        free_blocks: blocks that nobody holds, cached or not. All others are held by ``running``.
        free_slots: state slots that nobody holds.
        last_kind: what the last step was; None before the first. Looked at only where steps are not
            mixed.
    """

    limits: Limits
    running: tuple[SequenceView, ...]
    waiting: tuple[SequenceView, ...]
    free_blocks: int
    free_slots: int
    last_kind: StepKind | None = None


class Share(NamedTuple):
    """The part of a step that one sequence gets.

    Attributes:
        sequence_id: the engine's number.
        row_count: rows to feed, at least 1.
        new_blocks: blocks to take before the step.
    """

    sequence_id: int
    row_count: int
    new_blocks: int


class Decision(NamedTuple):
    """What the engine is to do, in this order.

    Attributes:
        preempted: running sequences that give back blocks and slot and wait, last in rank first.
        admitted: waiting sequences that get a slot, and their cached blocks, and run.
        shares: who feeds how many rows.
        kind: what the step is.
    """

    preempted: tuple[int, ...]
    admitted: tuple[int, ...]
    shares: tuple[Share, ...]
    kind: StepKind
