"""Which tokens do rows feed, and where, that only the device knows?

Where the step before verifies drafts, the host launches a step as if all of them were kept. The
device knows better: rows move down by one position for each draft that was not, the first one feeds
the token drawn behind the last that was, the others the drafts of the round behind it.

Shapes: T rows of the step, U sequences with open rows, W open rows, R sampled rows of the step
before, S places, n drafts of a round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from deepinfer_core.engine.parcel import Parcel
from deepinfer_core.interfaces.device import Device
from deepinfer_core.model.step import StepInputs
from deepinfer_core.schedule.plan import StepPlan

__all__ = ["Left", "OpenRows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a step leaves on the device for the next one.

    Attributes:
        inputs: of the step.
        row_R: row of the step that each sampled row is.
        token_R: what was drawn.
        accepted_R: bool, whether that is the draft behind the row.
    """

    inputs: StepInputs
    row_R: torch.Tensor
    token_R: torch.Tensor
    accepted_R: torch.Tensor


class OpenRows:
    """The open rows of one step, on the host.

    Args:
        plan: the step.
        device: where the inputs are.
    """

    def __init__(self, plan: StepPlan, device: Device) -> None:
        numbers: list[tuple[int, int, int, int]] = []
        rows: list[tuple[int, int, int]] = []
        end = 0
        for number, step in enumerate(plan.sequences):
            end += len(step.token_ids)
            if step.drawn_index < 0:
                continue
            count = 1 + step.scored_rows if step.token_ids[0] < 0 else 1
            rows += [(end - count + offset, len(numbers), offset) for offset in range(count)]
            numbers.append((number, step.place, step.drawn_index, step.open_rows))
        self._parcel: Parcel | None = None
        if numbers:
            columns = [np.array(numbers, dtype=np.int64).T, np.array(rows, dtype=np.int64).T]
            self._most_open = max(open_rows for *_, open_rows in numbers)
            self._parcel = Parcel(columns, device)

    def settle(
        self,
        inputs: StepInputs,
        left: Left | None,
        draft_Sn: torch.Tensor,
        shared_Q: torch.Tensor | None = None,
    ) -> None:
        """Put tokens and positions where they belong; called by work on a stream, once.

        Args:
            inputs: of the step; changed in place.
            left: by the step before; None: it failed, and what is fed means nothing.
            draft_Sn: int64 drafts of each place; -1: none, then any token is fed.
            shared_Q: int64 rows of each sequence, of which all rows are open; None: as planned.
        """
        if self._parcel is None or left is None:
            return
        numbers_4U, rows_3W = self._parcel.arrive()
        sequence_U, place_U, first_U, open_U = numbers_4U.unbind()
        row_W, owner_W, offset_W = rows_3W.unbind()
        if shared_Q is not None:
            owner_W, offset_W = _shared(inputs, shared_Q, row_W)
        kept_U = kept_drafts(left.accepted_R, first_U, open_U, self._most_open)
        last_U = first_U + kept_U
        before_U = left.row_R[last_U]
        # Three earlier tokens of the row that was kept last, it, the token behind it, the drafts.
        known_UX = torch.cat(
            (
                left.inputs.previous_T3[before_U, :2].flip(-1),
                left.inputs.token_T[before_U, None],
                left.token_R[last_U, None],
                draft_Sn[place_U].clamp_min(0),
            ),
            dim=-1,
        )
        moved_W = (open_U - kept_U)[owner_W]
        inputs.token_T[row_W] = known_UX[owner_W, offset_W + 3]
        back_3 = torch.arange(2, -1, -1, device=row_W.device)
        inputs.previous_T3[row_W] = known_UX[owner_W[:, None], offset_W[:, None] + back_3]
        inputs.position_T[row_W] -= moved_W
        inputs.start_Q[sequence_U] -= open_U - kept_U


def _shared(
    inputs: StepInputs, shared_Q: torch.Tensor, row_W: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Give rows to sequences anew, one sequence after the other: owner and offset of each row."""
    first_Q = shared_Q.cumsum(0) - shared_Q
    count = row_W.shape[0]
    owner_W = torch.repeat_interleave(shared_Q, output_size=count)
    offset_W = row_W - first_Q[owner_W]
    inputs.sequence_T[:count] = owner_W
    inputs.position_T[:count] = inputs.start_Q[owner_W] + offset_W
    inputs.row_count_Q[: shared_Q.shape[0]] = shared_Q
    return owner_W, offset_W


def kept_drafts(
    accepted_R: torch.Tensor | None, first_Q: torch.Tensor, most_Q: torch.Tensor, most: int
) -> torch.Tensor:
    """How many drafts of each sequence are accepted in front of the first that is not, int64 [Q].

    Args:
        accepted_R: of all sampled rows; None: none of them verifies a draft.
        first_Q: first row of each sequence.
        most_Q: drafts of each.
        most: the largest of them.
    """
    if accepted_R is None or not most:
        return torch.zeros_like(first_Q)
    offset_X = torch.arange(most, device=first_Q.device)
    row_QX = (first_Q[:, None] + offset_X).clamp_max(accepted_R.shape[0] - 1)
    is_kept_QX = accepted_R[row_QX] & (offset_X < most_Q[:, None])
    return is_kept_QX.to(torch.int64).cumprod(-1).sum(-1)
