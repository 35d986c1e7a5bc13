"""Peaks and sums of segments of logits. Twin: ``testing.kernel_cases.sampler_twins``, ``scan``.

A block a segment, all of it in registers. Sums are relative to the segment's own peak; a thread
adds its logits in order, a warp its threads as a tree, and one thread the warps.
"""

from dataclasses import dataclass
from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.catalogue import KernelLimits
from deepinfer_core.interfaces.operators.sampler import CHUNK_TOKENS, SEGMENT_TOKENS, SampleSpec

from deepinfer_nvidia.kernels import token_law as law
from deepinfer_nvidia.kernels.compiler_switches import OWN_BARRIERS
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["LIMITS", "Tuning", "build", "default_tuning"]

LIMITS = KernelLimits(spilled_bytes=8)
"""With one shape of rows; three blocks on a multiprocessor leave 80 registers to a thread."""

_WARPS = law.THREADS // 32
_GROUPS = SEGMENT_TOKENS // CHUNK_TOKENS
_MEMBERS = law.THREADS // _GROUPS
"""Threads whose logits make a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(KernelTuning):
    """Adds how registers are shared.

    Attributes:
        blocks: of a multiprocessor at once, at least.
    """

    blocks: int = 1


def default_tuning(spec: SampleSpec) -> Tuning:
    """A thread has 32 logits, which fp64 ones need twice the registers for."""
    blocks = 3 if spec.dtype == "float32" else 1
    return Tuning(threads=law.THREADS, pass_configs=OWN_BARRIERS, blocks=blocks)


def build(spec: SampleSpec, tuning: Tuning) -> Any:
    """Rows of ``spec.vocabulary`` logits of ``spec.dtype``."""
    rows = T.dynamic("rows")
    vocabulary, dtype = spec.vocabulary, spec.dtype
    segments, groups = spec.segments, spec.groups
    held = law.VECTORS * law.VECTOR

    @T.prim_func
    def sampler_scan_logits(
        logits_RV: T.Tensor((rows, vocabulary), dtype),
        temperature_R: T.Tensor((rows,), "float32"),
        top_p_R: T.Tensor((rows,), "float32"),
        top_k_R: T.Tensor((rows,), "int64"),
        peak_RS: T.Tensor((rows, segments), dtype),
        peak_token_RS: T.Tensor((rows, segments), "int32"),
        sum_RS: T.Tensor((rows, segments), "float64"),
        scaled_sum_RS: T.Tensor((rows, segments), "float64"),
        bad_RS: T.Tensor((rows, segments), "int32"),
        group_RG: T.Tensor((rows, groups), dtype),
    ) -> None:
        with T.Kernel(segments, rows, threads=tuning.threads) as (segment, row):
            T.annotate_min_blocks_per_sm(tuning.blocks)
            thread = T.get_thread_binding()
            x = T.alloc_local((held,), dtype)
            share = T.alloc_local((held,), dtype)
            thread_peak = T.alloc_shared((law.THREADS,), dtype)
            warp_peak = T.alloc_shared((_WARPS,), dtype)
            warp_sum = T.alloc_shared((_WARPS,), "float64")
            warp_scaled = T.alloc_shared((_WARPS,), "float64")
            first = T.alloc_shared((1,), "int32")
            flag = T.alloc_shared((1,), "int32")
            peak = T.alloc_var(dtype)
            base = T.alloc_var(dtype)
            bad = T.alloc_var("int32")
            token = T.alloc_var("int32")
            scaled = T.alloc_var("float64")
            scale = T.alloc_var("float64")

            if thread == 0:
                first[0] = vocabulary
                flag[0] = 0
            law.load_segment(logits_RV, x, row, segment, vocabulary)
            bad = 0
            for i in T.unroll(held):
                if T.isnan(x[i]) or x[i] == T.infinity(dtype):
                    bad = 1
                    x[i] = T.cast(0, dtype)
            peak = x[0]
            for i in T.unroll(1, held):
                peak = T.max(peak, x[i])
            thread_peak[thread] = peak
            base = T.warp_reduce_max(peak)
            if thread % 32 == 0:
                warp_peak[thread // 32] = base
            T.sync_threads()
            if bad == 1:
                T.atomic_max(flag[0], 1)
            base = warp_peak[0]
            for i in T.unroll(1, _WARPS):
                base = T.max(base, warp_peak[i])
            if thread < _GROUPS:
                group_RG[row, segment * _GROUPS + thread] = T.max(
                    T.max(thread_peak[thread * _MEMBERS], thread_peak[thread * _MEMBERS + 1]),
                    T.max(thread_peak[thread * _MEMBERS + 2], thread_peak[thread * _MEMBERS + 3]),
                )
            if peak == base:
                token = vocabulary
                for i in T.unroll(held):
                    if x[i] == base:
                        token = T.min(
                            token,
                            law.token_of(segment, i // law.VECTOR, i % law.VECTOR, thread),
                        )
                T.atomic_min(first[0], token)
            if thread == 0:
                peak_RS[row, segment] = base

            # A segment of -inf alone has sums of 0.
            if base == -T.infinity(dtype):
                base = T.cast(0, dtype)
            for i in T.unroll(held):
                share[i] = T.exp(x[i] - base)
            for step in (16, 8, 4, 2, 1):
                for i in T.unroll(step):
                    share[i] = share[i] + share[i + step]
            scaled = T.warp_reduce_sum(T.cast(share[0], "float64"))
            if thread % 32 == 0:
                warp_sum[thread // 32] = scaled
            scale = law.scale_of(temperature_R[row], top_p_R[row], top_k_R[row])
            if scale > T.float64(0):
                scaled = T.float64(0)
                for i in T.unroll(held):
                    scaled += law.power(x[i], base, scale)
                scaled = T.warp_reduce_sum(scaled)
                if thread % 32 == 0:
                    warp_scaled[thread // 32] = scaled
            T.sync_threads()
            if thread == 0:
                scaled = T.float64(0)
                for i in T.unroll(_WARPS):
                    scaled += warp_sum[i]
                sum_RS[row, segment] = scaled
                scaled = T.float64(0)
                if scale > T.float64(0):
                    for i in T.unroll(_WARPS):
                        scaled += warp_scaled[i]
                scaled_sum_RS[row, segment] = scaled
                peak_token_RS[row, segment] = first[0]
                bad_RS[row, segment] = flag[0]

    return sampler_scan_logits
