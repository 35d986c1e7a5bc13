"""Which kernels of the sampler may be asked for? ``interfaces.sampler`` says what they compute."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SamplerDrawSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerDrawSpec:
    """``Sampler.run`` but for masks, rules and alternatives.

    Arguments logits_RV, adjusted_RV if there is one, temperature_R, top_p_R, top_k_R, min_p_R,
    seed_R, position_R, forced_R, token_R, logprob_R, processed_logprob_R, invalid_R, and
    normaliser_R, fp64: the logarithm of the sum of the exponentials of the raw logits.

    Attributes:
        vocabulary: V.
        dtype: name of the dtype of logits_RV.
        adjusted_dtype: name of the dtype of adjusted_RV; None if logits are drawn from as they are.
    """

    vocabulary: int
    dtype: str
    adjusted_dtype: str | None
