"""How do matrix logits become a nearly doubly stochastic matrix?

Softmax over rows plus eps, then alternating column and row normalisation; the last step is a
column normalisation. On an NVIDIA device one Triton kernel per direction does all steps.
"""

from __future__ import annotations

import torch

__all__ = ["sinkhorn"]


def sinkhorn(matrix_NSS: torch.Tensor, iterations: int, eps: float) -> torch.Tensor:
    """Mixing matrix ``comb[source][destination]`` of every token, differentiable.

    Args:
        matrix_NSS: fp32 logits.
        iterations: number of column normalisations.
        eps: added to the softmax and to every sum.
    """
    if matrix_NSS.is_cuda:
        from .triton_kernels import SinkhornCuda

        return SinkhornCuda.apply(matrix_NSS, iterations, eps)
    comb = torch.softmax(matrix_NSS, dim=-1) + eps
    comb = comb / (comb.sum(-2, keepdim=True) + eps)
    for _ in range(iterations - 1):
        comb = comb / (comb.sum(-1, keepdim=True) + eps)
        comb = comb / (comb.sum(-2, keepdim=True) + eps)
    return comb
