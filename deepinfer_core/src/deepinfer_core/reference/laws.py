"""With which whole numbers is a row drawn, and which token do they give?

A law is a row of integers in proportion to probabilities. Their sums do not depend on order, so
nothing that is drawn from them does.

Shapes: R rows, V vocabulary.
"""

from __future__ import annotations

import torch

from deepinfer_core.interfaces.sampler import SamplerRows
from deepinfer_core.reference.random_numbers import UNIFORM_BITS

__all__ = ["WEIGHT_ONE", "invert", "laws_of", "point_laws"]

WEIGHT_ONE = 1 << 31
"""The integer weight of probability 1; products with it fit into int64 next to 27 bits of u."""


def invert(weight_RV: torch.Tensor, bits_R: torch.Tensor) -> torch.Tensor:
    """Find the first token whose running weight exceeds ``floor(bits * total / 2^53)``, int64 [R].

    Args:
        weight_RV: int64, each row's sum from 1 to below 2^36; tokens of weight 0 are never found.
        bits_R: int64 below 2^53.
    """
    running_RV = weight_RV.cumsum(-1)
    total_R = running_RV[:, -1]
    # The product without leaving int64: 26 upper bits, then 27 lower ones.
    lower_R = ((bits_R & ((1 << 27) - 1)) * total_R) >> 27
    point_R = ((bits_R >> 27) * total_R + lower_R) >> (UNIFORM_BITS - 27)
    return torch.searchsorted(running_RV, point_R[:, None], right=True)[:, 0]


def laws_of(logits_RV: torch.Tensor, rows: SamplerRows) -> tuple[torch.Tensor, torch.Tensor]:
    """Give the law that each row is drawn from, int64, and the log-probabilities it stands for.

    Args:
        logits_RV: adjusted, fp64.
        rows: settings of the same rows.
    """
    is_greedy_R = rows.temperature_R == 0
    if bool(is_greedy_R.all()):
        return point_laws(logits_RV)
    temperature_R = rows.temperature_R.to(torch.float64).masked_fill(is_greedy_R, 1)
    scaled_RV = logits_RV / temperature_R[:, None]
    kept_RV = scaled_RV.masked_fill(~_survivors(scaled_RV, rows), -torch.inf)
    weight_RV, logprob_RV = _weights(kept_RV), kept_RV.log_softmax(-1)
    if bool(is_greedy_R.any()):
        point_weight_RV, point_RV = point_laws(logits_RV)
        weight_RV = torch.where(is_greedy_R[:, None], point_weight_RV, weight_RV)
        logprob_RV = torch.where(is_greedy_R[:, None], point_RV, logprob_RV)
    return weight_RV, logprob_RV


def point_laws(logits_RV: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Laws and log-probabilities that allow the largest logit only, lowest id first."""
    best_R1 = logits_RV.argmax(-1, keepdim=True)
    weight_RV = torch.zeros_like(logits_RV, dtype=torch.int64).scatter_(1, best_R1, WEIGHT_ONE)
    return weight_RV, torch.full_like(logits_RV, -torch.inf).scatter_(1, best_R1, 0)


def _survivors(scaled_RV: torch.Tensor, rows: SamplerRows) -> torch.Tensor:
    """Whether each token passes top-k, top-p and min-p."""
    ordered_RV, order_RV = scaled_RV.sort(dim=-1, descending=True, stable=True)
    weight_RV = _weights(scaled_RV).gather(1, order_RV)
    before_RV = weight_RV.cumsum(-1) - weight_RV
    top_p_R = rows.top_p_R.to(torch.float64)[:, None]
    # With top_p = 1 all pass: the weights of a row sum to no more than 1.
    passes_RV = before_RV <= (top_p_R * WEIGHT_ONE).floor()
    rank_V = torch.arange(scaled_RV.shape[1], device=scaled_RV.device)
    passes_RV &= (rank_V < rows.top_k_R[:, None]) | (rows.top_k_R < 0)[:, None]
    share_RV = torch.exp(ordered_RV - ordered_RV[:, :1])
    passes_RV &= share_RV >= rows.min_p_R.to(torch.float64)[:, None]
    return torch.empty_like(passes_RV).scatter_(1, order_RV, passes_RV)


def _weights(logits_RV: torch.Tensor) -> torch.Tensor:
    """Integer weights, int64."""
    return (logits_RV.softmax(-1) * WEIGHT_ONE).floor_().to(torch.int64)
