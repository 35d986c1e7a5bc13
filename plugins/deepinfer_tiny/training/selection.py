"""Which k entries of a row are largest, as a mask?

Order: descending score, then ascending index; entries of -inf are never selected. On an NVIDIA
device a Triton kernel finds the k-th largest value by bisection on the bits, without sorting.
"""

from __future__ import annotations

import torch

__all__ = ["top_mask"]


def top_mask(score: torch.Tensor, k: int) -> torch.Tensor:
    """Boolean mask of the ``k`` best entries in the last dimension.

    Args:
        score: fp32; -inf marks entries that must not be selected; no NaN.
        k: most entries of a row.
    """
    if score.is_cuda:
        from .triton_kernels import top_mask_cuda

        return top_mask_cuda(score, k)
    return _top_mask_sorted(score, k)


def _top_mask_sorted(score: torch.Tensor, k: int) -> torch.Tensor:
    order = torch.sort(score, dim=-1, descending=True, stable=True).indices[..., :k]
    mask = torch.zeros_like(score, dtype=torch.bool).scatter_(-1, order, True)
    return mask & (score > -torch.inf)
