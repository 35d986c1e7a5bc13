"""Which experts does a row use, and how much does each count?

Shapes: T rows, E experts, k experts a row.
"""

import torch

from deepinfer_core.reference.arithmetic import row_sum, softplus

__all__ = ["choose_experts"]

_SUM_EPS = 1e-20
"""Added to the sum of the chosen scores (model constant)."""


def choose_experts(
    logits_TE: torch.Tensor,
    bias_E: torch.Tensor,
    image_bias_E: torch.Tensor,
    image_T: torch.Tensor,
    scaling: float,
    experts: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Give ids [T, k] by biased score, best first, and weights [T, k] from the plain scores.

    Args:
        logits_TE: fp32 or fp64.
        bias_E: added for rows outside images.
        image_bias_E: added for rows inside image spans.
        image_T: bool.
        scaling: what a row's weights sum to.
        experts: k.
    """
    score_TE = softplus(logits_TE).sqrt_()
    biased_TE = score_TE + torch.where(image_T[:, None], image_bias_E, bias_E)
    # Only a stable sort sends ties to the lower expert.
    order_TE = biased_TE.sort(dim=-1, descending=True, stable=True).indices
    expert_Tk = order_TE[:, :experts]
    chosen_Tk = score_TE.gather(1, expert_Tk)
    return expert_Tk, chosen_Tk / (row_sum(chosen_Tk) + _SUM_EPS)[:, None] * scaling
