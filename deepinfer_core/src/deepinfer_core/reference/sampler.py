"""How does a row of logits become a token?

Probabilities are fp64. Truncation and drawing use integer weights ``floor(2^31 * p)``, whose sums
do not depend on their order, so a token depends on the row's own logits and settings alone.

* Masks, biases and penalties: ``logits_rules``. Log-probabilities of the raw model law know none.
* Order: logit descending, then id ascending. top-k keeps a prefix of it. top-p keeps the shortest
  prefix whose weight exceeds ``floor(2^31 * top_p)``; it is measured before top-k. min-p drops
  what has less than its share of the largest probability.
* Draw: the survivors are normalised again; the first id whose running weight exceeds
  ``floor(u * total)`` is the token, with u from ``random_numbers``. A token of weight zero is
  never drawn.

Shapes: R rows, V vocabulary, A alternatives.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.component import Plan, Properties
from deepinfer_core.interfaces.sampler import (
    Sampler,
    SamplerOutputs,
    SamplerRows,
    SamplerSpec,
)
from deepinfer_core.plugin import BuildContext
from deepinfer_core.reference.logits_rules import adjusted
from deepinfer_core.reference.promises import PROMISES
from deepinfer_core.reference.random_numbers import FRESH_CASE, UNIFORM_BITS, uniform_bits

__all__ = ["ReferenceSampler", "SamplerPlan", "build", "invert"]

_ROW_TILE = 16
"""Rows at a time; each takes about ten fp64 or int64 rows of the vocabulary."""

_WEIGHT_ONE = 1 << 31
"""The integer weight of probability 1; products with it fit into int64 next to 27 bits of u."""


@dataclass(frozen=True, kw_only=True)
class SamplerPlan(Plan):
    """The numbers, checked."""

    spec: SamplerSpec


class ReferenceSampler(Sampler):
    """Draws with the portable generator."""

    @property
    def properties(self) -> Properties:
        """The promises of this component."""
        return PROMISES

    def plan(self, spec: SamplerSpec, max_rows: int) -> Plan:
        """Check the numbers.

        Raises:
            NotSupported: more alternatives than tokens.
        """
        if spec.alternatives > spec.vocabulary:
            raise NotSupported(
                f"asked for {spec.alternatives} alternatives, found {spec.vocabulary} tokens",
                hint="ask for fewer",
            )
        return SamplerPlan(max_rows=max_rows, spec=spec)

    def run(
        self, plan: Plan, logits_RV: torch.Tensor, rows: SamplerRows, out: SamplerOutputs
    ) -> None:
        """Sample, a tile of rows at a time."""
        assert isinstance(plan, SamplerPlan)
        for start in range(0, logits_RV.shape[0], _ROW_TILE):
            tile = slice(start, start + _ROW_TILE)
            _sample(logits_RV[tile], rows.tile(tile), out.tile(tile), plan.spec)


def build(options: None, context: BuildContext) -> ReferenceSampler:
    """Build the component; it has no options."""
    return ReferenceSampler()


def invert(weight_RV: torch.Tensor, bits_R: torch.Tensor) -> torch.Tensor:
    """Find the first token whose running weight exceeds ``floor(bits * total / 2^53)``, int64 [R].

    Args:
        weight_RV: int64, each row's sum from 1 to about 2^31; tokens of weight 0 are never found.
        bits_R: int64 below 2^53.
    """
    running_RV = weight_RV.cumsum(-1)
    total_R = running_RV[:, -1]
    # The product without leaving int64: 26 upper bits, then 27 lower ones.
    lower_R = ((bits_R & ((1 << 27) - 1)) * total_R) >> 27
    point_R = ((bits_R >> 27) * total_R + lower_R) >> (UNIFORM_BITS - 27)
    return torch.searchsorted(running_RV, point_R[:, None], right=True)[:, 0]


def _sample(
    logits_RV: torch.Tensor, rows: SamplerRows, out: SamplerOutputs, spec: SamplerSpec
) -> None:
    raw_RV = logits_RV.to(torch.float64)
    adjusted_RV = adjusted(raw_RV, rows)
    largest_R = adjusted_RV.amax(-1)
    invalid_R = raw_RV.isnan().any(-1) | (raw_RV == torch.inf).any(-1) | (largest_R == -torch.inf)
    # Invalid rows go on as rows of zeros: their results are unspecified, but must not fail.
    raw_RV = raw_RV.masked_fill(invalid_R[:, None], 0)
    adjusted_RV = adjusted_RV.masked_fill(invalid_R[:, None], 0)

    drawn_R, kept_logprob_RV = _draw(adjusted_RV, rows)
    token_R = torch.where(rows.forced_R >= 0, rows.forced_R, drawn_R)
    raw_logprob_RV = raw_RV.log_softmax(-1)
    out.invalid_R.copy_(invalid_R)
    out.token_R.copy_(token_R)
    out.logprob_R.copy_(raw_logprob_RV.gather(1, token_R[:, None])[:, 0])
    out.processed_logprob_R.copy_(kept_logprob_RV.gather(1, token_R[:, None])[:, 0])
    if spec.alternatives:
        order_RV = raw_RV.sort(dim=-1, descending=True, stable=True).indices
        top_RA = order_RV[:, : spec.alternatives]
        out.top_token_RA.copy_(top_RA)
        out.top_logprob_RA.copy_(raw_logprob_RV.gather(1, top_RA))


def _draw(logits_RV: torch.Tensor, rows: SamplerRows) -> tuple[torch.Tensor, torch.Tensor]:
    """Give a token of each row, and the log-probabilities it was drawn with."""
    is_greedy_R = rows.temperature_R == 0
    greedy_R = logits_RV.argmax(-1)
    point_RV = torch.full_like(logits_RV, -torch.inf).scatter_(1, greedy_R[:, None], 0)
    if bool(is_greedy_R.all()):
        return greedy_R, point_RV
    temperature_R = rows.temperature_R.to(torch.float64).masked_fill(is_greedy_R, 1)
    scaled_RV = logits_RV / temperature_R[:, None]
    kept_RV = scaled_RV.masked_fill(~_survivors(scaled_RV, rows), -torch.inf)
    logprob_RV = kept_RV.log_softmax(-1)
    bits_R = uniform_bits(rows.seed_R, rows.position_R, FRESH_CASE)
    token_R = invert(_weights(kept_RV), bits_R)
    token_R = torch.where(is_greedy_R, greedy_R, token_R)
    return token_R, torch.where(is_greedy_R[:, None], point_RV, logprob_RV)


def _survivors(scaled_RV: torch.Tensor, rows: SamplerRows) -> torch.Tensor:
    """Whether each token passes top-k, top-p and min-p."""
    ordered_RV, order_RV = scaled_RV.sort(dim=-1, descending=True, stable=True)
    weight_RV = _weights(scaled_RV).gather(1, order_RV)
    before_RV = weight_RV.cumsum(-1) - weight_RV
    top_p_R = rows.top_p_R.to(torch.float64)[:, None]
    # With top_p = 1 all pass: the weights of a row sum to no more than 1.
    passes_RV = before_RV <= (top_p_R * _WEIGHT_ONE).floor()
    rank_V = torch.arange(scaled_RV.shape[1], device=scaled_RV.device)
    passes_RV &= (rank_V < rows.top_k_R[:, None]) | (rows.top_k_R < 0)[:, None]
    share_RV = torch.exp(ordered_RV - ordered_RV[:, :1])
    passes_RV &= share_RV >= rows.min_p_R.to(torch.float64)[:, None]
    return torch.empty_like(passes_RV).scatter_(1, order_RV, passes_RV)


def _weights(logits_RV: torch.Tensor) -> torch.Tensor:
    """Integer weights, int64."""
    return (logits_RV.softmax(-1) * _WEIGHT_ONE).floor_().to(torch.int64)
