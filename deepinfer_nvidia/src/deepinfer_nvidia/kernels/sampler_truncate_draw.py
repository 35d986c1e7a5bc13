"""Truncation and draw. Twin: ``deepinfer_core.reference.sampler``, with the same tokens.

One block a row. Probabilities are fp64 and weights whole numbers, so no sum of weights depends on
its order; only the sum of the exponentials does, which the tile and the threads fix.

The kept tokens are a prefix of the order (logit descending, id ascending). Where it ends is searched
in histograms of counts and weights: first in buckets of falling logits, since the bits of a float
would crowd into few, then among the bits of the logits in the bucket, and at last, among equal
logits, in the ids. Each round is a pass over the row, most rows need two or three.
"""

from dataclasses import dataclass
from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.sampler import SamplerDrawSpec

from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["Tuning", "build", "default_tuning"]

_BINS = 1024
_BUCKETS_A_UNIT = 46.0
"""Weights vanish 21.5 units below the largest logit over temperature."""

_ONE = 2147483648.0
"""The integer weight of probability 1."""

_ABSENT = 1 << 30
_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND = 0x94D049BB133111EB - (1 << 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(KernelTuning):
    """Adds tokens of one step."""

    tile: int = 2048


def default_tuning(_spec: SamplerDrawSpec) -> Tuning:
    """Half of a multiprocessor's threads."""
    return Tuning(threads=512)


def build(spec: SamplerDrawSpec, tuning: Tuning) -> Any:
    """Rows of ``spec.vocabulary`` logits."""
    return _adjusted(spec, tuning) if spec.adjusted_dtype else _plain(spec, tuning)


def _plain(spec: SamplerDrawSpec, tuning: Tuning) -> Any:
    rows = T.dynamic("rows")
    vocabulary = spec.vocabulary
    sample = _sample(spec, tuning)

    @T.prim_func
    def sampler_truncate_draw(
        logits_RV: T.Tensor((rows, vocabulary), spec.dtype),
        temperature_R: T.Tensor((rows,), "float32"),
        top_p_R: T.Tensor((rows,), "float32"),
        top_k_R: T.Tensor((rows,), "int64"),
        min_p_R: T.Tensor((rows,), "float32"),
        seed_R: T.Tensor((rows,), "int64"),
        position_R: T.Tensor((rows,), "int64"),
        forced_R: T.Tensor((rows,), "int64"),
        token_R: T.Tensor((rows,), "int64"),
        logprob_R: T.Tensor((rows,), "float32"),
        processed_logprob_R: T.Tensor((rows,), "float32"),
        invalid_R: T.Tensor((rows,), "bool"),
        normaliser_R: T.Tensor((rows,), "float64"),
    ) -> None:
        with T.Kernel(rows, threads=tuning.threads) as row:
            sample(
                row,
                logits_RV,
                logits_RV,
                (temperature_R, top_p_R, top_k_R, min_p_R, seed_R, position_R, forced_R),
                (token_R, logprob_R, processed_logprob_R, invalid_R, normaliser_R),
            )

    return sampler_truncate_draw


def _adjusted(spec: SamplerDrawSpec, tuning: Tuning) -> Any:
    rows = T.dynamic("rows")
    vocabulary = spec.vocabulary
    sample = _sample(spec, tuning)

    @T.prim_func
    def sampler_truncate_draw(
        logits_RV: T.Tensor((rows, vocabulary), spec.dtype),
        adjusted_RV: T.Tensor((rows, vocabulary), spec.adjusted_dtype),
        temperature_R: T.Tensor((rows,), "float32"),
        top_p_R: T.Tensor((rows,), "float32"),
        top_k_R: T.Tensor((rows,), "int64"),
        min_p_R: T.Tensor((rows,), "float32"),
        seed_R: T.Tensor((rows,), "int64"),
        position_R: T.Tensor((rows,), "int64"),
        forced_R: T.Tensor((rows,), "int64"),
        token_R: T.Tensor((rows,), "int64"),
        logprob_R: T.Tensor((rows,), "float32"),
        processed_logprob_R: T.Tensor((rows,), "float32"),
        invalid_R: T.Tensor((rows,), "bool"),
        normaliser_R: T.Tensor((rows,), "float64"),
    ) -> None:
        with T.Kernel(rows, threads=tuning.threads) as row:
            sample(
                row,
                logits_RV,
                adjusted_RV,
                (temperature_R, top_p_R, top_k_R, min_p_R, seed_R, position_R, forced_R),
                (token_R, logprob_R, processed_logprob_R, invalid_R, normaliser_R),
            )

    return sampler_truncate_draw
