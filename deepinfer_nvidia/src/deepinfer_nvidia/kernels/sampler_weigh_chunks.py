"""Weights of chunks of pending rows. Twin: ``deepinfer_core.reference.sampler``.

A block a segment. The weights of 128 neighbouring tokens, which a warp holds, become one sum.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.sampler import CHUNK_TOKENS, SEGMENT_TOKENS, SampleSpec

from deepinfer_nvidia.kernels import token_law as law
from deepinfer_nvidia.kernels.compiler_switches import OWN_BARRIERS
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["build", "default_tuning"]

_CHUNKS = SEGMENT_TOKENS // CHUNK_TOKENS
_WARPS = law.THREADS // 32


def default_tuning(_spec: SampleSpec) -> KernelTuning:
    """A vector of a warp is a chunk."""
    return KernelTuning(threads=law.THREADS, pass_configs=OWN_BARRIERS)


def build(spec: SampleSpec, tuning: KernelTuning) -> Any:
    """Rows of ``spec.vocabulary`` logits."""
    rows = T.dynamic("rows")
    vocabulary, dtype, segments = spec.vocabulary, spec.dtype, spec.segments

    @T.prim_func
    def sampler_weigh_chunks(
        logits_RV: T.Tensor((rows, vocabulary), dtype),
        temperature_R: T.Tensor((rows,), "float32"),
        min_p_R: T.Tensor((rows,), "float32"),
        peak_R: T.Tensor((rows,), "float64"),
        pending_R: T.Tensor((rows,), "int32"),
        cut_value_R: T.Tensor((rows,), "float64"),
        cut_token_R: T.Tensor((rows,), "int32"),
        kept_total_R: T.Tensor((rows,), "float64"),
        chunk_RG: T.Tensor((rows, spec.groups), "int64"),
    ) -> None:
        with T.Kernel(segments, rows, threads=tuning.threads) as (segment, row):
            thread = T.get_thread_binding()
            x = T.alloc_local((law.VECTORS * law.VECTOR,), dtype)
            weights = T.alloc_var("uint32")
            share = T.alloc_var("float64")
            inverse = T.alloc_var("float64")
            inverse_total = T.alloc_var("float64")
            token = T.alloc_var("int32")
            if pending_R[row] != 0:
                inverse = T.float64(1) / T.cast(temperature_R[row], "float64")
                inverse_total = T.float64(1) / kept_total_R[row]
                law.load_segment(logits_RV, x, row, segment, vocabulary)
                for vector in T.unroll(law.VECTORS):
                    weights = T.uint32(0)
                    for place in T.unroll(law.VECTOR):
                        token = law.token_of(segment, vector, place, thread)
                        logit = x[vector * law.VECTOR + place]
                        if law.survives_cut(
                            logit, token, cut_value_R[row], cut_token_R[row]
                        ) and T.Not(law.is_weightless(logit, peak_R[row], inverse)):
                            share = law.power(logit, peak_R[row], inverse)
                            if share >= T.cast(min_p_R[row], "float64"):
                                weights += T.cast(law.weight(share, inverse_total), "uint32")
                    weights = T.warp_reduce_sum(weights)
                    if thread % 32 == 0:
                        chunk_RG[row, segment * _CHUNKS + vector * _WARPS + thread // 32] = T.cast(
                            weights, "int64"
                        )

    return sampler_weigh_chunks
