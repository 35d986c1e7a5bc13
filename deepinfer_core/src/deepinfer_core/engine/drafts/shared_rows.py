"""Which sequences get the rows of a step, decided where the newest confidences are: on the device.

The host plans a step while the drafts that it verifies are still being drawn, so it only fixes how
many rows there are, and shares them out by what it has. Where a step is repeated from a recording,
nothing on the host depends on who has which rows, so the device shares them out once more.
``schedule.speculation.split`` is the same rule on the host, and says why it may see what the total
must not.

Shapes: Q sequences of the step, n drafts of each, C = Q * n drafts, S places.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from deepinfer_core.engine.parcel import Parcel
from deepinfer_core.interfaces.device import Device
from deepinfer_core.schedule.plan import StepPlan

__all__ = ["SharedRows", "split_rows"]


class SharedRows:
    """The rows of one step that are shared out, on the host.

    Args:
        plan: the step; it says by which factors, and every sequence feeds open rows.
        factor_n: how far survival is to be corrected, by draft.
        device: where the step runs.
    """

    def __init__(self, plan: StepPlan, factor_n: Sequence[float], device: Device) -> None:
        steps = plan.sequences
        self._device = device
        self._rows = plan.rows
        self._planned = tuple([len(step.token_ids) for step in steps])
        numbers_2Q = np.array(
            [[step.place for step in steps], [step.most_rows for step in steps]], dtype=np.int64
        )
        self._parcel = Parcel([numbers_2Q, np.array(factor_n, dtype=np.float32)], device)
        self._arrived: torch.Tensor | None = None

    def settle(self, confidence_Sn: torch.Tensor) -> torch.Tensor:
        """Share them out, int64 [Q]; called by work on a stream, once.

        Args:
            confidence_Sn: fp32, of the newest drafts of each place.
        """
        numbers_2Q, factor_n = self._parcel.arrive()
        place_Q, most_Q = numbers_2Q.unbind()
        rows_Q = split_rows(confidence_Sn[place_Q], most_Q, self._rows, factor_n)
        self._arrived = rows_Q
        if rows_Q.device.type != "cpu":
            arrived = self._device.host_buffer(tuple(rows_Q.shape), torch.int64)
            self._arrived = arrived.copy_(rows_Q, non_blocking=True)
        return rows_Q

    def rows(self) -> tuple[int, ...]:
        """What each sequence got; only after the event behind ``settle``.

        What was planned, if that was not called: then the step before failed.
        """
        return self._planned if self._arrived is None else tuple(self._arrived.tolist())


def split_rows(
    confidence_Qn: torch.Tensor, most_Q: torch.Tensor, total: int, factor_n: torch.Tensor
) -> torch.Tensor:
    """Share out a total by survival.

    Every draft is ranked by how many others survive better, or as well and stand before it, so the
    ranks are all different and the rows sum up to the total. Nothing waits for the device, and no
    shape depends on a number there.

    Args:
        confidence_Qn: fp32, how likely each draft is accepted if those before it are.
        most_Q: int64, rows that each sequence can feed, from 1 to n + 1.
        total: from Q up to the sum of ``most_Q``.
        factor_n: fp32, by which survival is multiplied; the product counts as no more than 1, and
            as no more than that of the draft before.

    Returns:
        int64 [Q]: 1 and the number of drafts to verify, the first ones of each sequence.
    """
    survival_Qn = confidence_Qn.clone()
    # Left to right, one product after the other: a scan could multiply in another order.
    for draft in range(1, survival_Qn.shape[1]):
        survival_Qn[:, draft] *= survival_Qn[:, draft - 1]
    expected_Qn = (survival_Qn * factor_n).clamp_max(1).cummin(dim=1).values
    draft_n = torch.arange(1, expected_Qn.shape[1] + 1, device=most_Q.device)
    expected_Qn = expected_Qn.where(draft_n < most_Q[:, None], -1.0)
    order_C = expected_Qn.flatten().argsort(descending=True, stable=True)
    place_C = torch.arange(order_C.shape[0], device=order_C.device)
    rank_C = torch.empty_like(order_C).scatter_(0, order_C, place_C)
    wins_Qn = rank_C.view_as(expected_Qn) < total - most_Q.shape[0]
    return 1 + wins_Qn.sum(dim=1)
