"""Draws from pending rows. Twin: ``deepinfer_core.reference.sampler``, ``invert``.

A block a row: the chunk in which the running weight exceeds the point, then the token in it.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.sampler import CHUNK_TOKENS, SEGMENT_TOKENS, SampleSpec

from deepinfer_nvidia.kernels import token_law as law
from deepinfer_nvidia.kernels.compiler_switches import OWN_BARRIERS
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["build", "default_tuning"]

_LINE = SEGMENT_TOKENS // CHUNK_TOKENS
"""Chunks of a segment."""


def default_tuning(_spec: SampleSpec) -> KernelTuning:
    """A thread a token of a chunk."""
    return KernelTuning(threads=CHUNK_TOKENS, pass_configs=OWN_BARRIERS)


def build(spec: SampleSpec, tuning: KernelTuning) -> Any:
    """Rows of ``spec.vocabulary`` logits."""
    rows = T.dynamic("rows")
    vocabulary, dtype, segments = spec.vocabulary, spec.dtype, spec.segments
    groups = spec.groups

    @T.prim_func
    def sampler_draw_chunks(
        raw_logits_RV: T.Tensor((rows, vocabulary), spec.raw_dtype),
        logits_RV: T.Tensor((rows, vocabulary), dtype),
        temperature_R: T.Tensor((rows,), "float32"),
        min_p_R: T.Tensor((rows,), "float32"),
        seed_R: T.Tensor((rows,), "int64"),
        position_R: T.Tensor((rows,), "int64"),
        forced_R: T.Tensor((rows,), "int64"),
        log_total_R: T.Tensor((rows,), "float64"),
        peak_R: T.Tensor((rows,), "float64"),
        pending_R: T.Tensor((rows,), "int32"),
        cut_value_R: T.Tensor((rows,), "float64"),
        cut_token_R: T.Tensor((rows,), "int32"),
        kept_total_R: T.Tensor((rows,), "float64"),
        chunk_RG: T.Tensor((rows, groups), "int64"),
        token_R: T.Tensor((rows,), "int64"),
        logprob_R: T.Tensor((rows,), "float32"),
        processed_logprob_R: T.Tensor((rows,), "float32"),
    ) -> None:
        with T.Kernel(rows, threads=tuning.threads) as row:
            thread = T.get_thread_binding()
            chunk = T.alloc_shared((groups,), "int64")
            segment_sum = T.alloc_shared((segments,), "int64")
            size = T.alloc_shared((CHUNK_TOKENS,), "int64")
            inverse = T.alloc_var("float64")
            total = T.alloc_var("int64")
            point = T.alloc_var("int64")
            place = T.alloc_var("int32")
            first = T.alloc_var("int32")
            share = T.alloc_var("float64")
            drawn = T.alloc_var("int64")

            if pending_R[row] != 0:
                inverse = T.float64(1) / T.cast(temperature_R[row], "float64")
                for i in T.serial(T.ceildiv(groups, tuning.threads)):
                    if i * tuning.threads + thread < groups:
                        chunk[i * tuning.threads + thread] = chunk_RG[
                            row, i * tuning.threads + thread
                        ]
                T.sync_threads()
                for i in T.serial(T.ceildiv(segments, tuning.threads)):
                    if i * tuning.threads + thread < segments:
                        total = T.int64(0)
                        for j in T.serial(_LINE):
                            total += chunk[(i * tuning.threads + thread) * _LINE + j]
                        segment_sum[i * tuning.threads + thread] = total
                T.sync_threads()
                total = T.int64(0)
                for i in T.serial(segments):
                    total += segment_sum[i]
                point = law.draw_point(law.uniform_bits(seed_R[row], position_R[row]), total)
                place = -1
                for i in T.serial(segments):
                    if place < 0:
                        if point < segment_sum[i]:
                            place = i * _LINE
                        else:
                            point -= segment_sum[i]
                first = -1
                for i in T.serial(_LINE):
                    if first < 0:
                        if point < chunk[place + i]:
                            first = (place + i) * CHUNK_TOKENS
                        else:
                            point -= chunk[place + i]
                size[thread] = T.int64(0)
                if first + thread < vocabulary:
                    share = law.power(logits_RV[row, first + thread], peak_R[row], inverse)
                    if law.survives_cut(
                        logits_RV[row, first + thread],
                        first + thread,
                        cut_value_R[row],
                        cut_token_R[row],
                    ) and share >= T.cast(min_p_R[row], "float64"):
                        size[thread] = law.weight(share, T.float64(1) / kept_total_R[row])
                T.sync_threads()
                if thread == 0:
                    drawn = T.int64(-1)
                    for i in T.serial(CHUNK_TOKENS):
                        if drawn < T.int64(0):
                            if point < size[i]:
                                drawn = T.cast(first + i, "int64")
                            else:
                                point -= size[i]
                    if forced_R[row] >= T.int64(0):
                        drawn = forced_R[row]
                    share = law.power(logits_RV[row, drawn], peak_R[row], inverse)
                    token_R[row] = drawn
                    logprob_R[row] = T.cast(
                        T.cast(raw_logits_RV[row, drawn], "float64") - log_total_R[row], "float32"
                    )
                    processed_logprob_R[row] = -T.infinity("float32")
                    if law.survives_cut(
                        logits_RV[row, drawn],
                        T.cast(drawn, "int32"),
                        cut_value_R[row],
                        cut_token_R[row],
                    ) and share >= T.cast(min_p_R[row], "float64"):
                        processed_logprob_R[row] = T.cast(
                            (T.cast(logits_RV[row, drawn], "float64") - peak_R[row]) * inverse
                            - T.log(kept_total_R[row]),
                            "float32",
                        )

    return sampler_draw_chunks
