"""Draws from rows whose survivors are few. Twin: ``deepinfer_core.reference.sampler``.

A block a row. It gathers a beginning of the row's order; if truncation ends within it, a thread a
token finds out how many tokens and how much weight come before, and what weights the survivors
have among themselves. A row whose truncation ends later, or that has none, is left pending. Of the
others it is written down where they are cut, as ``sampler_cut_rows`` does of pending ones.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.sampler import (
    CANDIDATES,
    OPEN_TOKENS,
    SHORT_TOKENS,
    SampleSpec,
)

from deepinfer_nvidia.kernels import best_tokens as best
from deepinfer_nvidia.kernels import token_law as law
from deepinfer_nvidia.kernels.compiler_switches import OWN_BARRIERS
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["build", "default_tuning"]


def default_tuning(_spec: SampleSpec) -> KernelTuning:
    """A thread a candidate."""
    return KernelTuning(threads=best.THREADS, pass_configs=OWN_BARRIERS)


def build(spec: SampleSpec, tuning: KernelTuning) -> Any:
    """Rows of ``spec.vocabulary`` logits."""
    rows = T.dynamic("rows")
    vocabulary, dtype, segments = spec.vocabulary, spec.dtype, spec.segments
    held, infinity = CANDIDATES, T.infinity("float64")

    @T.prim_func
    def sampler_truncate_draw(
        raw_logits_RV: T.Tensor((rows, vocabulary), spec.raw_dtype),
        logits_RV: T.Tensor((rows, vocabulary), dtype),
        temperature_R: T.Tensor((rows,), "float32"),
        top_p_R: T.Tensor((rows,), "float32"),
        top_k_R: T.Tensor((rows,), "int64"),
        min_p_R: T.Tensor((rows,), "float32"),
        seed_R: T.Tensor((rows,), "int64"),
        position_R: T.Tensor((rows,), "int64"),
        forced_R: T.Tensor((rows,), "int64"),
        raw_peak_RS: T.Tensor((rows, segments), spec.raw_dtype),
        raw_sum_RS: T.Tensor((rows, segments), "float64"),
        raw_bad_RS: T.Tensor((rows, segments), "int32"),
        peak_RS: T.Tensor((rows, segments), dtype),
        peak_token_RS: T.Tensor((rows, segments), "int32"),
        scaled_sum_RS: T.Tensor((rows, segments), "float64"),
        group_RG: T.Tensor((rows, spec.groups), dtype),
        token_R: T.Tensor((rows,), "int64"),
        logprob_R: T.Tensor((rows,), "float32"),
        processed_logprob_R: T.Tensor((rows,), "float32"),
        invalid_R: T.Tensor((rows,), "bool"),
        log_total_R: T.Tensor((rows,), "float64"),
        peak_R: T.Tensor((rows,), "float64"),
        total_R: T.Tensor((rows,), "float64"),
        pending_R: T.Tensor((rows,), "int32"),
        cut_value_R: T.Tensor((rows,), "float64"),
        cut_token_R: T.Tensor((rows,), "int32"),
        kept_total_R: T.Tensor((rows,), "float64"),
    ) -> None:
        with T.Kernel(rows, threads=tuning.threads) as row:
            thread = T.get_thread_binding()
            segment_sum = T.alloc_shared((segments,), "float64")
            segment_raw = T.alloc_shared((segments,), "float64")
            value = T.alloc_shared((held,), "float64")
            token = T.alloc_shared((held,), "int32")
            share = T.alloc_shared((held,), "float64")
            size = T.alloc_shared((held,), "int64")
            threshold = T.alloc_shared((1,), dtype)
            counts = T.alloc_shared((2,), "int32")
            found = T.alloc_shared((1,), "int32")
            last = T.alloc_shared((1,), "int32")
            distance = T.alloc_shared((1,), "float64")
            peak = T.alloc_var("float64")
            raw_peak = T.alloc_var("float64")
            bad = T.alloc_var("int32")
            best_token = T.alloc_var("int32")
            total = T.alloc_var("float64")
            raw_total = T.alloc_var("float64")
            inverse = T.alloc_var("float64")
            wanted = T.alloc_var("int32")
            top_k = T.alloc_var("int64")
            limit = T.alloc_var("int64")
            count = T.alloc_var("int32")
            rank = T.alloc_var("int32")
            steps = T.alloc_var("int32")
            before = T.alloc_var("int64")
            weights = T.alloc_var("int64")
            survives = T.alloc_var("int32")
            kept = T.alloc_var("float64")
            kept_total = T.alloc_var("float64")
            processed = T.alloc_var("float64")
            point = T.alloc_var("int64")
            decided = T.alloc_var("int32")
            drawn = T.alloc_var("int64")

            # The whole row from its segments.
            peak = -infinity
            raw_peak = -infinity
            bad = 0
            best_token = 0
            for s in T.serial(segments):
                if T.cast(peak_RS[row, s], "float64") > peak:
                    peak = T.cast(peak_RS[row, s], "float64")
                    best_token = peak_token_RS[row, s]
                raw_peak = T.max(raw_peak, T.cast(raw_peak_RS[row, s], "float64"))
                bad = bad | raw_bad_RS[row, s]
            if peak == -infinity:
                bad = 1
            inverse = T.float64(1)
            if temperature_R[row] > T.float32(0):
                inverse = T.float64(1) / T.cast(temperature_R[row], "float64")
            for i in T.serial(T.ceildiv(segments, tuning.threads)):
                if i * tuning.threads + thread < segments:
                    rank = i * tuning.threads + thread
                    segment_sum[rank] = scaled_sum_RS[row, rank] * law.power(
                        peak_RS[row, rank], peak, inverse
                    )
                    segment_raw[rank] = raw_sum_RS[row, rank] * law.power(
                        raw_peak_RS[row, rank], raw_peak, T.float64(1)
                    )
            T.sync_threads()
            total = T.float64(0)
            raw_total = T.float64(0)
            for s in T.serial(segments):
                total += segment_sum[s]
                raw_total += segment_raw[s]

            # Candidates, as far as truncation may reach.
            top_k = top_k_R[row]
            wanted = 0
            if temperature_R[row] > T.float32(0) and bad == 0:
                if top_k >= T.int64(0):
                    wanted = T.cast(T.min(top_k, T.int64(SHORT_TOKENS)), "int32")
                elif top_p_R[row] < T.float32(1) or min_p_R[row] > T.float32(0):
                    wanted = OPEN_TOKENS
            best.gather_best(
                logits_RV, group_RG, row, wanted, vocabulary, value, token, threshold, counts
            )
            count = T.min(counts[0], held)

            # What comes before each candidate in the row's order.
            limit = T.cast(
                T.floor(T.cast(top_p_R[row], "float64") * T.float64(law.WEIGHT_ONE)), "int64"
            )
            steps = T.ceildiv(count, best.STEP)
            share[thread] = T.float64(0)
            size[thread] = T.int64(0)
            if thread < count:
                share[thread] = law.power(value[thread], peak, inverse)
                if top_p_R[row] < T.float32(1):
                    size[thread] = law.weight(share[thread], T.float64(1) / total)
            if thread == 0:
                found[0] = -1
                last[0] = -1
            T.sync_threads()
            rank = 0
            before = T.int64(0)
            weights = T.int64(0)
            survives = 0
            kept = T.float64(0)
            if thread < count:
                for step in T.serial(steps):
                    for u in T.unroll(best.STEP):
                        i = step * best.STEP + u
                        weights += size[i]
                        if best.is_before(value[i], token[i], value[thread], token[thread]):
                            rank += 1
                            before += size[i]
                survives = T.if_then_else(
                    T.Or(top_k < T.int64(0), T.cast(rank, "int64") < top_k), 1, 0
                )
                if before > limit or share[thread] < T.cast(min_p_R[row], "float64"):
                    survives = 0
                if survives == 1:
                    kept = share[thread]
            # Everything above -inf, all of top-k, of top-p, or of min-p.
            decided = T.if_then_else(threshold[0] == -T.infinity(dtype) and wanted > 0, 1, 0)
            if top_k >= T.int64(0) and T.cast(counts[0], "int64") >= top_k:
                decided = 1
            if top_p_R[row] < T.float32(1) and weights > limit:
                decided = 1
            if law.power(threshold[0], peak, inverse) < T.cast(min_p_R[row], "float64"):
                decided = 1
            if counts[0] > held:
                decided = 0
            T.sync_threads()

            # Survivors among themselves; shares are added from the best on.
            if thread < count:
                share[rank] = kept
            if survives == 1:
                T.atomic_max(last[0], rank)
            T.sync_threads()
            kept_total = T.float64(0)
            for step in T.serial(steps):
                for u in T.unroll(best.STEP):
                    kept_total += share[step * best.STEP + u]
            if thread < count:
                size[thread] = law.weight(kept, T.float64(1) / kept_total)
            T.sync_threads()
            if survives == 1:
                before = T.int64(0)
                weights = T.int64(0)
                for step in T.serial(steps):
                    for u in T.unroll(best.STEP):
                        weights += size[step * best.STEP + u]
                        if token[step * best.STEP + u] < token[thread]:
                            before += size[step * best.STEP + u]
                point = law.draw_point(law.uniform_bits(seed_R[row], position_R[row]), weights)
                drawn = forced_R[row]
                if drawn < T.int64(0) and before <= point and point < before + size[thread]:
                    drawn = T.cast(token[thread], "int64")
                if drawn == T.cast(token[thread], "int64"):
                    found[0] = token[thread]
                    distance[0] = (value[thread] - peak) * inverse - T.log(kept_total)
                if decided == 1 and rank == last[0]:
                    cut_value_R[row] = value[thread]
                    cut_token_R[row] = token[thread]
                    kept_total_R[row] = kept_total
            T.sync_threads()

            if thread == 0:
                drawn = T.cast(found[0], "int64")
                processed = T.if_then_else(found[0] >= 0, distance[0], -infinity)
                if temperature_R[row] <= T.float32(0):
                    drawn = T.cast(best_token, "int64")
                    processed = T.float64(0)
                    if forced_R[row] >= T.int64(0) and forced_R[row] != drawn:
                        processed = -infinity
                if forced_R[row] >= T.int64(0):
                    drawn = forced_R[row]
                pending_R[row] = 0
                if temperature_R[row] > T.float32(0) and decided == 0 and bad == 0:
                    pending_R[row] = 1
                invalid_R[row] = bad != 0
                token_R[row] = T.int64(0)
                logprob_R[row] = T.float32(0)
                processed_logprob_R[row] = T.float32(0)
                log_total_R[row] = T.float64(0)
                peak_R[row] = T.float64(0)
                total_R[row] = T.float64(0)
                if bad == 0:
                    raw_total = raw_peak + T.log(raw_total)
                    log_total_R[row] = raw_total
                    peak_R[row] = peak
                    total_R[row] = total
                    if temperature_R[row] <= T.float32(0) or decided == 1:
                        token_R[row] = drawn
                        logprob_R[row] = T.cast(
                            T.cast(raw_logits_RV[row, drawn], "float64") - raw_total, "float32"
                        )
                        processed_logprob_R[row] = T.cast(processed, "float32")

    return sampler_truncate_draw
