"""How do four residual streams become one sublayer input, and take its output back?

Each sublayer computes three mixes from the trunk: ``pre`` collapses the streams to the input of the
*next* sublayer, ``post`` spreads its own output over the streams, and ``comb`` mixes the streams
among themselves. ``comb`` is made nearly doubly stochastic by Sinkhorn's alternation; the last
step normalises columns, so columns sum to one and rows only nearly.

Shapes: T rows, S streams, D width, M = S * (2 + S) mixes.

Source: manifold-constrained hyper-connections as DeepSeek-V4.1-Flash uses them.
"""

import torch

from deepinfer_core.interfaces.transform import MixSpec
from deepinfer_core.reference.arithmetic import (
    accumulation_dtype,
    mean_square,
    row_product,
    sigmoid,
)

__all__ = ["collapse", "expand", "mixes", "sinkhorn"]


def mixes(
    trunk_TSD: torch.Tensor,
    fn_MK: torch.Tensor,
    base_M: torch.Tensor,
    scale_3: torch.Tensor,
    spec: MixSpec,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute pre [T, S], post [T, S] and comb [T, S, S] in the accumulation dtype.

    The norm of the trunk is one factor a row and is applied after the product.
    """
    streams = trunk_TSD.shape[1]
    accumulate = accumulation_dtype(trunk_TSD.dtype)
    flat_TK = trunk_TSD.flatten(1).to(accumulate)
    z_TM = row_product(flat_TK, fn_MK.to(accumulate))
    z_TM *= torch.rsqrt(mean_square(flat_TK) + spec.norm_eps)[:, None]
    # One factor a mix, so that the three kinds take one multiplication.
    widths = (streams, streams, streams * streams)
    factors = [one.expand(n) for one, n in zip(scale_3, widths, strict=True)]
    z_TM = z_TM * torch.cat(factors) + base_M
    gates_TX = sigmoid(z_TM[:, : 2 * streams])
    pre_TS = gates_TX[:, :streams] + spec.eps
    post_TS = gates_TX[:, streams:] * 2
    comb_TSS = z_TM[:, 2 * streams :].reshape(-1, streams, streams)
    return pre_TS, post_TS, sinkhorn(comb_TSS, spec)


def sinkhorn(logits_TSS: torch.Tensor, spec: MixSpec) -> torch.Tensor:
    """Normalise the exponentials: softmax of rows, then columns and rows in turn, columns last.

    Args:
        logits_TSS: [T, source, destination], fp32 or fp64.
        spec: ``sinkhorn_iterations`` counts the normalisations of columns.
    """
    comb = torch.softmax(logits_TSS, -1) + spec.eps
    comb /= comb.sum(-2, keepdim=True).add_(spec.eps)
    for _ in range(spec.sinkhorn_iterations - 1):
        comb /= comb.sum(-1, keepdim=True).add_(spec.eps)
        comb /= comb.sum(-2, keepdim=True).add_(spec.eps)
    return comb


def collapse(trunk_TSD: torch.Tensor, pre_TS: torch.Tensor) -> torch.Tensor:
    """Give the sum over streams of ``pre * trunk``, [T, D], in the accumulation dtype."""
    weighted_TSD = pre_TS[:, :, None] * trunk_TSD.to(accumulation_dtype(trunk_TSD.dtype))
    first_TD, *others = weighted_TSD.unbind(1)
    return sum(others, first_TD)


def expand(
    trunk_TSD: torch.Tensor, y_TD: torch.Tensor, post_TS: torch.Tensor, comb_TSS: torch.Tensor
) -> torch.Tensor:
    """Give ``post[n] * y + sum over m of comb[m][n] * trunk[m]``, [T, S, D], accumulation dtype."""
    accumulate = accumulation_dtype(trunk_TSD.dtype)
    out_TSD = post_TS[:, :, None] * y_TD.to(accumulate)[:, None]
    for comb_TS, h_TD in zip(comb_TSS.unbind(1), trunk_TSD.to(accumulate).unbind(1), strict=True):
        out_TSD += comb_TS[:, :, None] * h_TD[:, None]
    return out_TSD
