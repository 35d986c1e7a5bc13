"""How does a plan become the model's inputs?

Everything that a step brings to the device travels in one parcel.

Shapes: T rows of the step, Q sequences, B blocks of the longest sequence, U rows whose token the
step before draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, chain
from operator import sub

import numpy as np
import torch

from deepinfer_core.cache.replay import DecoderTruncation
from deepinfer_core.engine.parcel import Parcel
from deepinfer_core.interfaces.device import Device
from deepinfer_core.model.step import StepInputs
from deepinfer_core.schedule.plan import SequenceStep, StepPlan

__all__ = ["PackedStep", "StepShape", "step_inputs"]


@dataclass(frozen=True, slots=True)
class StepShape:
    """What a decode step is padded to.

    Attributes:
        rows: of all sequences together.
        sequences: of the block table; more than those of the step where it has fewer rows.
        blocks: width of the block table.
    """

    rows: int
    sequences: int
    blocks: int


class PackedStep:
    """The inputs of a step, on the host.

    Args:
        plan: at least one sequence; unknown tokens stay open.
        device: where the inputs go.
        truncation: how the decoder half treats prompts.
        shape: of a step that wants the logits of every row: what it is padded to, with sequences
            and rows that only touch the dummy pages. Steps of one shape are packed alike, open
            tokens last.
    """

    def __init__(
        self,
        plan: StepPlan,
        device: Device,
        truncation: DecoderTruncation | None = None,
        *,
        shape: StepShape | None = None,
    ) -> None:
        self._open_2U = open_2U = _open_tokens(plan)
        rows = plan.rows
        if shape is not None:
            plan = _padded(plan, shape)
        self._steps = steps = plan.sequences
        self._truncation = truncation
        self._counts = counts = [len(step.token_ids) for step in steps]
        self._wanted = plan.wanted_rows()
        starts = [step.start for step in steps]
        sequence_T, position_T = _places(starts, counts)
        position_T[rows:] = 0  # the dummy block has room for few of them
        token_T, previous_T3 = _tokens(steps, sequence_T)
        numbers = [
            starts,
            counts,
            [step.valid_start for step in steps],
            [step.cached_end for step in steps],
            [step.keep_from for step in steps],
        ]
        arrays = [
            token_T,
            position_T,
            sequence_T,
            previous_T3,
            _block_table([step.block_ids for step in steps], shape.blocks if shape else None),
            np.array([step.state_slot for step in steps], dtype=np.int64),
            np.array(self._wanted, dtype=np.int64),
            np.array(numbers, dtype=np.int64),
        ]
        if open_2U is not None:
            arrays.append(open_2U)
        self._parcel = Parcel(arrays, device)

    def bring(self, drawn_R: torch.Tensor | None) -> torch.Tensor:
        """Bring the step to the device; called by work on a stream, once.

        Args:
            drawn_R: tokens that the step before drew, for the open ones; None: they stay open.

        Returns:
            int64 words, from which ``inputs`` makes the inputs.
        """
        words = self._parcel.move()
        if self._open_2U is not None and drawn_R is not None:
            token_T, *_, open_2U = self._parcel.split(words)
            row_U, drawn_U = open_2U.unbind()
            token_T[row_U] = drawn_R[drawn_U]
        return words

    def inputs(self, words: torch.Tensor) -> StepInputs:
        """The inputs, which lie in ``words``."""
        token, position, sequence, previous, table, slot, wanted, numbers, *_ = self._parcel.split(
            words
        )
        steps = self._steps
        return StepInputs(
            token_T=token,
            position_T=position,
            sequence_T=sequence,
            previous_T3=previous,
            image_T=torch.zeros_like(token, dtype=torch.bool),
            image_previous_T3=torch.zeros_like(previous, dtype=torch.bool),
            embedding_TD=None,
            block_table_QB=table,
            state_slot_Q=slot,
            starts=tuple([step.start for step in steps]),
            row_counts=tuple(self._counts),
            valid_starts=tuple([step.valid_start for step in steps]),
            sample_row_R=wanted,
            cached_ends=tuple([step.cached_end for step in steps]),
            truncation=self._truncation,
            keep_from=tuple([step.keep_from for step in steps]),
            sample_rows=tuple(self._wanted),
            placed_5Q=numbers,
        )


def step_inputs(
    plan: StepPlan, device: Device, truncation: DecoderTruncation | None = None
) -> StepInputs:
    """Turn a plan into the model's inputs at once; see ``PackedStep``."""
    packed = PackedStep(plan, device, truncation)
    return packed.inputs(packed.bring(None))


def _padded(plan: StepPlan, shape: StepShape) -> StepPlan:
    """The plan with sequences over the dummy pages, the last of which has all rows of padding."""
    spare = shape.sequences - len(plan.sequences)
    if not spare:
        return plan
    padding = (*[_padding(0)] * (spare - 1), _padding(shape.rows - plan.rows))
    return StepPlan((*plan.sequences, *padding))


def _padding(rows: int) -> SequenceStep:
    return SequenceStep(
        sequence_id=-1,
        start=0,
        token_ids=(0,) * rows,
        history=(-1, -1, -1),
        block_ids=(0,),
        state_slot=0,
        wants_token=rows > 0,
        scored_rows=max(rows - 1, 0),
    )


def _places(starts: list[int], counts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Sequence and position of each row."""
    # From a row's place in the step to its position.
    shifts = list(map(sub, starts, accumulate(counts, initial=0)))
    sequence_T = np.arange(len(starts)).repeat(counts)
    position_T = np.array(shifts).repeat(counts)
    position_T += np.arange(len(position_T))
    return sequence_T, position_T


_DISTANCES = np.array([1, 2, 3])


def _tokens(
    steps: tuple[SequenceStep, ...], sequence_T: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Ids of the rows [rows], and the ids at distance 1, 2 and 3 before each [rows, 3]."""
    known = [(*reversed(step.history), *step.token_ids) for step in steps]
    known_N = np.fromiter(chain.from_iterable(known), np.int64)
    # Three ids of history stand in front of the rows of each sequence.
    place_T = 3 * sequence_T + np.arange(3, 3 + len(sequence_T))
    return known_N[place_T], known_N[place_T[:, None] - _DISTANCES]


def _block_table(blocks: list[tuple[int, ...]], width: int | None) -> np.ndarray:
    """Blocks of all sequences [sequences, width], padded with -1; as wide as the most, if None."""
    counts_Q = np.array([len(one) for one in blocks])
    is_used_QB = np.arange(width or int(counts_Q.max())) < counts_Q[:, None]
    table_QB = np.full(is_used_QB.shape, -1, dtype=np.int64)
    table_QB[is_used_QB] = np.fromiter(chain.from_iterable(blocks), np.int64, counts_Q.sum())
    return table_QB


def _open_tokens(plan: StepPlan) -> np.ndarray | None:
    """Rows whose token is open, and the place of each among the rows drawn before, [2, U]."""
    places: list[tuple[int, int]] = []
    end = 0
    for step in plan.sequences:
        end += len(step.token_ids)
        if step.drawn_index >= 0:
            places.append((end - 1, step.drawn_index))
    return np.array(places, dtype=np.int64).T.copy() if places else None
