"""Which sequences get the rows of a step, decided where the newest confidences are: on the device.

The total was fixed by the host before they existed; ``schedule.speculation.split`` of the core does
the same on the host with what it has.

Shapes: Q sequences of this step, P of the step before, n drafts a sequence, C = Q * n drafts.
"""

from __future__ import annotations

import torch

__all__ = ["split_rows"]


def split_rows(
    confidence_Pn: torch.Tensor, remap_Q: torch.Tensor, total: torch.Tensor | int
) -> torch.Tensor:
    """Share out a total by survival.

    Every draft is ranked by how many others survive better, or as well and stand before it, so the
    ranks are all different and the rows sum up to the total. Nothing waits for the device, and no
    shape depends on a number there.

    Args:
        confidence_Pn: fp32, how likely each draft is accepted if those before it are.
        remap_Q: int64, which row of ``confidence_Pn`` is a sequence's; -1: it has no drafts.
        total: from Q up to Q * (n + 1). A tensor of one int64 where only the device knows it.

    Returns:
        int64 [Q]: 1 and the number of drafts to verify, the first ones of each sequence. One
        without drafts gets more than 1 only where all drafts of the others are verified.
    """
    confidence_Qn = confidence_Pn[remap_Q.clamp_min(0)].where(remap_Q[:, None] >= 0, 0.0)
    survival_Qn = confidence_Qn.clone()
    # Left to right, one product after the other: a scan could multiply in another order.
    for draft in range(1, survival_Qn.shape[1]):
        survival_Qn[:, draft] *= survival_Qn[:, draft - 1]
    order_C = survival_Qn.flatten().argsort(descending=True, stable=True)
    place_C = torch.arange(order_C.shape[0], device=order_C.device)
    rank_C = torch.empty_like(order_C).scatter_(0, order_C, place_C)
    wins_Qn = rank_C.view_as(survival_Qn) < total - remap_Q.shape[0]
    return 1 + wins_Qn.sum(dim=1)
