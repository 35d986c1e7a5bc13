"""What does the scheduler tell the runner to do in one step?

A plan speaks of token ids, positions and block numbers; it holds no tensor. Source of the
block and slot conventions: block 0 and state slot 0 are dummies.
"""

from dataclasses import dataclass

__all__ = ["SequenceStep", "StepPlan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceStep:
    """The rows that one sequence feeds in a step.

    Attributes:
        sequence_id: the engine's number of the sequence.
        start: absolute position of the first row.
        token_ids: ids of the rows, at positions ``start`` and following.
        history: the ids at ``start - 1``, ``start - 2``, ``start - 3``; -1 where there is none.
        block_ids: the sequence's blocks so far, enough for all rows.
        state_slot: the sequence's state slot.
        wants_token: whether the last row's logits are sampled.
        wants_scores: whether the other rows' logits are wanted too, to score the token behind each.
    """

    sequence_id: int
    start: int
    token_ids: tuple[int, ...]
    history: tuple[int, int, int]
    block_ids: tuple[int, ...]
    state_slot: int
    wants_token: bool
    wants_scores: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """All sequences of one step, in row order."""

    sequences: tuple[SequenceStep, ...]

    @property
    def rows(self) -> int:
        """Rows of the step over all sequences."""
        return sum(len(step.token_ids) for step in self.sequences)
