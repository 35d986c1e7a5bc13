"""How do logits become tokens?

Order of work on a row: mask, temperature, top-k and top-p on one sorted order (logit descending,
then id ascending; the shorter prefix wins), min-p, draw. A draw depends on (seed, position) and the
row's logits, never on the other rows. Temperature 0 takes the largest logit, lowest id first.

Shapes: R rows, V vocabulary, W = ceil(V / 32) mask words, A alternatives.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepinfer_core.interfaces.component import Component, Plan

if TYPE_CHECKING:
    import torch

__all__ = ["Sampler", "SamplerOutputs", "SamplerRows", "SamplerSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerSpec:
    """What a call looks like.

    Attributes:
        vocabulary: V.
        alternatives: A, the most alternatives that any row of the engine may ask for.
    """

    vocabulary: int
    alternatives: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerRows:
    """The settings of each row.

    Attributes:
        temperature_R: fp32, >= 0; 0 is greedy.
        top_p_R: fp32 in (0, 1]; 1 keeps all. A token is dropped if the mass before it, in units of
            2^-31, exceeds this share; mass equal to it keeps the token.
        top_k_R: int64; -1 keeps all.
        min_p_R: fp32 in [0, 1); keeps tokens with at least this share of the best probability.
        seed_R: int64, the bits of an unsigned 64-bit seed.
        position_R: int64, position that the drawn token will have.
        forced_R: int64 token to emit in place of the draw, or -1.
        allowed_RW: int32 bit mask, bit i of word w allows token 32 * w + i; None allows all.
    """

    temperature_R: torch.Tensor
    top_p_R: torch.Tensor
    top_k_R: torch.Tensor
    min_p_R: torch.Tensor
    seed_R: torch.Tensor
    position_R: torch.Tensor
    forced_R: torch.Tensor
    allowed_RW: torch.Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerOutputs:
    """Buffers that a call fills.

    Attributes:
        token_R: int64.
        logprob_R: fp32 log-probability of the token under the raw model distribution.
        processed_logprob_R: the same under the distribution that was drawn from; -inf if dropped.
        top_token_RA: int64, raw distribution, best first, ties by lower id.
        top_logprob_RA: fp32.
        invalid_R: bool, set where logits hold NaN or +inf, or nothing is allowed; the row's other
            outputs are then unspecified. The other rows are unharmed.
    """

    token_R: torch.Tensor
    logprob_R: torch.Tensor
    processed_logprob_R: torch.Tensor
    top_token_RA: torch.Tensor
    top_logprob_RA: torch.Tensor
    invalid_R: torch.Tensor


class Sampler(Component):
    """Draws one token a row."""

    @abstractmethod
    def plan(self, spec: SamplerSpec, max_rows: int) -> Plan:
        """Prepare for at most ``max_rows`` rows."""

    @abstractmethod
    def run(
        self, plan: Plan, logits_RV: torch.Tensor, rows: SamplerRows, out: SamplerOutputs
    ) -> None:
        """Sample every row.

        Args:
            plan: from ``plan``.
            logits_RV: fp32 or fp64, read only.
            rows: settings.
            out: buffers, overwritten.
        """
