"""What does the scheduling policy look at, and what does it answer?

A snapshot is everything the policy may know; a decision is everything it may ask for. The engine
carries a decision out: it moves sequences between its queues, takes blocks and builds the plan.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Decision", "Limits", "SequenceView", "Share", "Snapshot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes that hold for the life of an engine.

    Attributes:
        max_rows: rows of one step, prompts and decodes together.
        max_sequences: sequences that hold a state slot at the same time.
        block_tokens: tokens in one block.
        usable_blocks: blocks that sequences can hold, the dummy block not counted.
    """

    max_rows: int
    max_sequences: int
    block_tokens: int
    usable_blocks: int

    def __post_init__(self) -> None:
        """Refuse sizes under which a running sequence could be left without a row for ever.

        Raises:
            ValueError: a size is not positive, or a step has fewer rows than running sequences.
        """
        smallest = min(self.max_rows, self.max_sequences, self.block_tokens, self.usable_blocks)
        if smallest < 1:
            raise ValueError(f"every limit must be at least 1, found {self}")
        if self.max_rows < self.max_sequences:
            raise ValueError(
                f"a step of {self.max_rows} rows cannot serve {self.max_sequences} sequences"
            )

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold ``tokens`` tokens."""
        return -(-tokens // self.block_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceView:
    """One sequence as the policy sees it.

    Attributes:
        sequence_id: the engine's number.
        known_tokens: prompt and output tokens so far.
        computed_tokens: rows whose cache entries exist; below ``known_tokens``.
        block_count: blocks it holds.
    """

    sequence_id: int
    known_tokens: int
    computed_tokens: int
    block_count: int

    @property
    def pending_tokens(self) -> int:
        """Rows to feed before the next token can be drawn."""
        return self.known_tokens - self.computed_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The engine's state between two steps.

    Attributes:
        limits: fixed sizes.
        running: sequences that hold a slot, in order of arrival.
        waiting: sequences that hold nothing, in order of arrival; all arrived after ``running``.
        free_blocks: blocks nobody holds.
        free_slots: state slots nobody holds.
    """

    limits: Limits
    running: tuple[SequenceView, ...]
    waiting: tuple[SequenceView, ...]
    free_blocks: int
    free_slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The part of a step that one sequence gets.

    Attributes:
        sequence_id: the engine's number.
        row_count: rows to feed, at least 1.
        new_blocks: blocks to take before the step.
    """

    sequence_id: int
    row_count: int
    new_blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the engine is to do, in this order.

    Attributes:
        preempted: running sequences that give back blocks and slot and wait, to be recomputed.
        admitted: waiting sequences that get a slot and run.
        shares: who feeds how many rows, in order of arrival.
    """

    preempted: tuple[int, ...]
    admitted: tuple[int, ...]
    shares: tuple[Share, ...]
