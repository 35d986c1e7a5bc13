"""Where truncation ends in rows with many survivors. Twin: ``deepinfer_core.reference.sampler``.

A block a row, for rows that ``sampler_truncate_draw`` left pending. Tokens are counted, or weighed,
in bins of falling logits; the bin in which the prefix ends is gathered and looked at one by one.
Where too many tokens share it, digits of their logits, then of their ids, narrow it down exactly.
Only whole numbers are added up in memory that threads share.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.catalogue import KernelLimits
from deepinfer_core.interfaces.operators.sampler import SampleSpec

from deepinfer_nvidia.kernels import row_cut as cut
from deepinfer_nvidia.kernels import token_law as law
from deepinfer_nvidia.kernels.best_tokens import is_before
from deepinfer_nvidia.kernels.compiler_switches import OWN_BARRIERS
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["LIMITS", "build", "default_tuning"]

LIMITS = KernelLimits(spilled_bytes=52)
"""With fp64 logits; 28 with fp32. Blocks of 1024 threads leave 64 registers to each."""


def default_tuning(_spec: SampleSpec) -> KernelTuning:
    """All threads that a block can have."""
    return KernelTuning(threads=cut.THREADS, pass_configs=OWN_BARRIERS)


def build(spec: SampleSpec, tuning: KernelTuning) -> Any:
    """Rows of ``spec.vocabulary`` logits."""
    rows = T.dynamic("rows")
    vocabulary, dtype = spec.vocabulary, spec.dtype
    threads, held = tuning.threads, cut.CANDIDATES
    trips = -(-vocabulary // (threads * cut.UNROLL))
    infinity = T.infinity("float64")

    @T.prim_func
    def sampler_cut_rows(
        logits_RV: T.Tensor((rows, vocabulary), dtype),
        temperature_R: T.Tensor((rows,), "float32"),
        top_p_R: T.Tensor((rows,), "float32"),
        top_k_R: T.Tensor((rows,), "int64"),
        min_p_R: T.Tensor((rows,), "float32"),
        peak_R: T.Tensor((rows,), "float64"),
        total_R: T.Tensor((rows,), "float64"),
        pending_R: T.Tensor((rows,), "int32"),
        cut_value_R: T.Tensor((rows,), "float64"),
        cut_token_R: T.Tensor((rows,), "int32"),
        kept_total_R: T.Tensor((rows,), "float64"),
    ) -> None:
        with T.Kernel(rows, threads=threads) as row:
            thread = T.get_thread_binding()
            sums = T.alloc_shared((cut.LINES, cut.LINE + 1), "uint32")
            line_sums = T.alloc_shared((cut.LINES,), "int64")
            value = T.alloc_shared((held,), "float64")
            token = T.alloc_shared((held,), "int32")
            size = T.alloc_shared((held,), "int64")
            count = T.alloc_shared((1,), "int32")
            end_value = T.alloc_shared((1,), "float64")
            end_token = T.alloc_shared((1,), "int32")
            warp_sum = T.alloc_shared((threads // 32,), "float64")
            x = T.alloc_local((cut.UNROLL,), dtype)
            inverse = T.alloc_var("float64")
            inverse_total = T.alloc_var("float64")
            limit = T.alloc_var("int64")
            rest = T.alloc_var("int64")
            bin_ = T.alloc_var("int32")
            digit = T.alloc_var("int32")
            slot = T.alloc_var("int32")
            weight = T.alloc_var("int64")
            before = T.alloc_var("int64")
            is_needed = T.alloc_var("int32")
            is_cut = T.alloc_var("int32")
            key = T.alloc_var("uint64")
            key_prefix = T.alloc_var("uint64")
            token_prefix = T.alloc_var("int32")
            cut_value = T.alloc_var("float64")
            cut_token = T.alloc_var("int32")
            share = T.alloc_var("float64")
            kept = T.alloc_var("float64")

            if pending_R[row] != 0:
                inverse = T.float64(1) / T.cast(temperature_R[row], "float64")
                inverse_total = T.float64(1) / total_R[row]
                cut_value = -infinity
                cut_token = vocabulary
                is_cut = 0
                # By the number of tokens, then by their weight; the shorter prefix wins.
                for by_weight in T.serial(2):
                    is_needed = T.if_then_else(top_p_R[row] < T.float32(1), 1, 0)
                    limit = T.cast(
                        T.floor(T.cast(top_p_R[row], "float64") * T.float64(law.WEIGHT_ONE)),
                        "int64",
                    )
                    if by_weight == 0:
                        is_needed = T.if_then_else(top_k_R[row] >= T.int64(0), 1, 0)
                        limit = top_k_R[row] - T.int64(1)
                    if is_needed == 1:
                        cut.clear(sums, count)
                        for i in T.serial(trips):
                            cut.load(logits_RV, x, row, i, vocabulary)
                            for u in T.unroll(cut.UNROLL):
                                if x[u] > -T.infinity(dtype):
                                    digit = cut.bin_of(x[u], peak_R[row], inverse)
                                    weight = T.int64(1)
                                    if by_weight == 1:
                                        weight = T.int64(0)
                                        if digit < cut.WEIGHTLESS_BIN:
                                            share = law.power(x[u], peak_R[row], inverse)
                                            weight = law.weight(share, inverse_total)
                                    cut.add(sums, digit, weight)
                        rest = limit
                        cut.find(sums, line_sums, bin_, rest)
                        if bin_ >= 0:
                            # The bin in which the prefix ends.
                            for i in T.serial(trips):
                                cut.load(logits_RV, x, row, i, vocabulary)
                                for u in T.unroll(cut.UNROLL):
                                    if x[u] > -T.infinity(dtype):
                                        digit = cut.bin_of(x[u], peak_R[row], inverse)
                                        if digit == bin_:
                                            slot = T.atomic_add(count[0], 1, return_prev=True)
                                            if slot < held:
                                                value[slot] = T.cast(x[u], "float64")
                                                token[slot] = cut.token_of(i, u)
                            T.sync_threads()
                            if count[0] <= held:
                                if thread < count[0]:
                                    size[thread] = T.int64(1)
                                    if by_weight == 1:
                                        share = law.power(value[thread], peak_R[row], inverse)
                                        size[thread] = law.weight(share, inverse_total)
                                T.sync_threads()
                                if thread < count[0]:
                                    before = T.int64(0)
                                    for i in T.serial(count[0]):
                                        if is_before(
                                            value[i], token[i], value[thread], token[thread]
                                        ):
                                            before += size[i]
                                    if before <= rest and rest < before + size[thread]:
                                        end_value[0] = value[thread]
                                        end_token[0] = token[thread]
                            else:
                                key_prefix = T.uint64(0)
                                token_prefix = 0
                                for level in T.serial(cut.LEVELS):
                                    cut.clear(sums, count)
                                    for i in T.serial(trips):
                                        cut.load(logits_RV, x, row, i, vocabulary)
                                        for u in T.unroll(cut.UNROLL):
                                            digit = cut.bin_of(x[u], peak_R[row], inverse)
                                            key = cut.key_of(x[u])
                                            slot = cut.token_of(i, u)
                                            if (
                                                x[u] > -T.infinity(dtype)
                                                and digit == bin_
                                                and cut.has_prefix(
                                                    level, key, slot, key_prefix, token_prefix
                                                )
                                            ):
                                                weight = T.int64(1)
                                                if by_weight == 1:
                                                    share = law.power(x[u], peak_R[row], inverse)
                                                    weight = law.weight(share, inverse_total)
                                                cut.add(
                                                    sums, cut.digit_of(level, key, slot), weight
                                                )
                                    cut.find(sums, line_sums, digit, rest)
                                    key_prefix = cut.longer_key(level, key_prefix, digit)
                                    token_prefix = cut.longer_token(level, token_prefix, digit)
                                if thread == 0:
                                    end_value[0] = cut.value_of(key_prefix)
                                    end_token[0] = token_prefix
                            T.sync_threads()
                            if is_cut == 0 or is_before(
                                end_value[0], end_token[0], cut_value, cut_token
                            ):
                                cut_value = end_value[0]
                                cut_token = end_token[0]
                            is_cut = 1
                            T.sync_threads()

                kept = total_R[row]
                if is_cut == 1 or min_p_R[row] > T.float32(0) or kept == T.float64(0):
                    kept = T.float64(0)
                    for i in T.serial(trips):
                        cut.load(logits_RV, x, row, i, vocabulary)
                        for u in T.unroll(cut.UNROLL):
                            if law.survives_cut(x[u], cut.token_of(i, u), cut_value, cut_token):
                                share = law.power(x[u], peak_R[row], inverse)
                                if share >= T.cast(min_p_R[row], "float64"):
                                    kept += share
                    kept = T.warp_reduce_sum(kept)
                    if thread % 32 == 0:
                        warp_sum[thread // 32] = kept
                    T.sync_threads()
                    kept = T.float64(0)
                    for i in T.unroll(threads // 32):
                        kept += warp_sum[i]
                if thread == 0:
                    cut_value_R[row] = cut_value
                    cut_token_R[row] = cut_token
                    kept_total_R[row] = kept

    return sampler_cut_rows
