"""The whole numbers that rows are drawn with. Twin: ``deepinfer_core.reference.laws``.

A block a segment; a greedy row has one number, and so has an invalid one, of which nothing is
asked but that it has a law. Certainty is one less than its weight, so that it fits into int32.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.sampler import SampleSpec

from deepinfer_nvidia.kernels import token_law as law
from deepinfer_nvidia.kernels.compiler_switches import OWN_BARRIERS
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["build", "default_tuning"]

_CERTAIN = (1 << 31) - 1


def default_tuning(_spec: SampleSpec) -> KernelTuning:
    """A thread has vectors of a segment."""
    return KernelTuning(threads=law.THREADS, pass_configs=OWN_BARRIERS)


def build(spec: SampleSpec, tuning: KernelTuning) -> Any:
    """Rows of ``spec.vocabulary`` logits, and as many of the laws that are kept."""
    rows, kept = T.dynamic("rows"), T.dynamic("kept")
    vocabulary, dtype, segments = spec.vocabulary, spec.dtype, spec.segments

    @T.prim_func
    def sampler_write_laws(
        logits_RV: T.Tensor((rows, vocabulary), dtype),
        temperature_R: T.Tensor((rows,), "float32"),
        min_p_R: T.Tensor((rows,), "float32"),
        invalid_R: T.Tensor((rows,), "bool"),
        peak_R: T.Tensor((rows,), "float64"),
        cut_value_R: T.Tensor((rows,), "float64"),
        cut_token_R: T.Tensor((rows,), "int32"),
        kept_total_R: T.Tensor((rows,), "float64"),
        peak_RS: T.Tensor((rows, segments), dtype),
        peak_token_RS: T.Tensor((rows, segments), "int32"),
        law_row_R: T.Tensor((rows,), "int64"),
        law_PV: T.Tensor((kept, vocabulary), "int32"),
    ) -> None:
        with T.Kernel(segments, rows, threads=tuning.threads) as (segment, row):
            thread = T.get_thread_binding()
            x = T.alloc_local((law.VECTORS * law.VECTOR,), dtype)
            peak = T.alloc_var(dtype)
            best = T.alloc_var("int32")
            is_drawn = T.alloc_var("int32")
            share = T.alloc_var("float64")
            inverse = T.alloc_var("float64")
            inverse_total = T.alloc_var("float64")
            token = T.alloc_var("int32")
            weight = T.alloc_var("int64")

            is_drawn = 0
            best = 0
            if T.Not(invalid_R[row]):
                if temperature_R[row] > T.float32(0):
                    is_drawn = 1
                else:
                    peak = -T.infinity(dtype)
                    for s in T.serial(segments):
                        if peak_RS[row, s] > peak:
                            peak = peak_RS[row, s]
                            best = peak_token_RS[row, s]
            inverse = T.float64(1)
            inverse_total = T.float64(1)
            if is_drawn == 1:
                inverse = T.float64(1) / T.cast(temperature_R[row], "float64")
                inverse_total = T.float64(1) / kept_total_R[row]
                law.load_segment(logits_RV, x, row, segment, vocabulary)
            for vector in T.unroll(law.VECTORS):
                for place in T.unroll(law.VECTOR):
                    token = law.token_of(segment, vector, place, thread)
                    weight = T.int64(0)
                    if is_drawn == 1:
                        logit = x[vector * law.VECTOR + place]
                        if law.survives_cut(
                            logit, token, cut_value_R[row], cut_token_R[row]
                        ) and T.Not(law.is_weightless(logit, peak_R[row], inverse)):
                            share = law.power(logit, peak_R[row], inverse)
                            if share >= T.cast(min_p_R[row], "float64"):
                                weight = law.weight(share, inverse_total)
                    elif token == best:
                        weight = T.int64(_CERTAIN)
                    if token < vocabulary:
                        law_PV[law_row_R[row], token] = T.cast(
                            T.min(weight, T.int64(_CERTAIN)), "int32"
                        )

    return sampler_write_laws
