"""Accepts drafts, or draws in their place. Twin: ``deepinfer_core.reference.ratio_rule``.

A block a row with a draft: it reads the row's law and the draft's two times, for their sums and for
how much the one exceeds the other, and a third time where the draft is rejected, to draw from that
excess. All of it are whole numbers; only the test itself is in fp64.
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

_HELD = CHUNK_TOKENS // 32
"""Tokens of a lane, of the chunk that its warp reads."""

_SUM_BITS = 36
"""Of the sums that a token is drawn with in place of a draft."""


def default_tuning(_spec: SampleSpec) -> KernelTuning:
    """As many as have registers enough that none is spilled: reading is all there is."""
    return KernelTuning(threads=512, pass_configs=OWN_BARRIERS)


def build(spec: SampleSpec, tuning: KernelTuning) -> Any:
    """Rows of ``spec.vocabulary`` logits, with the laws of their drafts."""
    rows, laws = T.dynamic("rows"), T.dynamic("laws")
    vocabulary, dtype = spec.vocabulary, spec.dtype
    segments, groups, warps = spec.segments, spec.groups, tuning.threads // 32
    trips = -(-vocabulary // (CHUNK_TOKENS * warps))

    def token_at(trip: Any, place: int) -> Any:
        """Of a lane, in the chunk that its warp reads."""
        thread = T.get_thread_binding()
        return (trip * warps + thread // 32) * CHUNK_TOKENS + place * 32 + thread % 32

    @T.prim_func
    def sampler_verify_drafts(
        raw_logits_RV: T.Tensor((rows, vocabulary), spec.raw_dtype),
        logits_RV: T.Tensor((rows, vocabulary), dtype),
        temperature_R: T.Tensor((rows,), "float32"),
        min_p_R: T.Tensor((rows,), "float32"),
        seed_R: T.Tensor((rows,), "int64"),
        position_R: T.Tensor((rows,), "int64"),
        forced_R: T.Tensor((rows,), "int64"),
        log_total_R: T.Tensor((rows,), "float64"),
        peak_R: T.Tensor((rows,), "float64"),
        cut_value_R: T.Tensor((rows,), "float64"),
        cut_token_R: T.Tensor((rows,), "int32"),
        kept_total_R: T.Tensor((rows,), "float64"),
        own_law_RV: T.Tensor((rows, vocabulary), "int32"),
        draft_R: T.Tensor((rows,), "int64"),
        law_row_R: T.Tensor((rows,), "int64"),
        law_PV: T.Tensor((laws, vocabulary), "int32"),
        token_R: T.Tensor((rows,), "int64"),
        logprob_R: T.Tensor((rows,), "float32"),
        processed_logprob_R: T.Tensor((rows,), "float32"),
        accepted_R: T.Tensor((rows,), "bool"),
        overlap_R: T.Tensor((rows,), "float32"),
    ) -> None:
        with T.Kernel(rows, threads=tuning.threads) as row:
            thread = T.get_thread_binding()
            chunk = T.alloc_shared((groups,), "int64")
            segment_sum = T.alloc_shared((segments,), "int64")
            size = T.alloc_shared((CHUNK_TOKENS,), "int64")
            own_sum = T.alloc_shared((warps,), "int64")
            other_sum = T.alloc_shared((warps,), "int64")
            excess_sum = T.alloc_shared((warps,), "int64")
            own = T.alloc_var("int64")
            other = T.alloc_var("int64")
            own_total = T.alloc_var("int64")
            other_total = T.alloc_var("int64")
            rejection = T.alloc_var("int64")
            total = T.alloc_var("int64")
            token = T.alloc_var("int32")
            draft = T.alloc_var("int32")
            kept_row = T.alloc_var("int64")
            exponent = T.alloc_var("int64")
            accepted = T.alloc_var("int32")
            point = T.alloc_var("int64")
            place = T.alloc_var("int32")
            first = T.alloc_var("int32")
            drawn = T.alloc_var("int32")
            share = T.alloc_var("float64")
            uniform = T.alloc_var("float64")

            draft = T.cast(draft_R[row], "int32")
            kept_row = law_row_R[row]
            if draft < 0:
                if thread == 0:
                    accepted_R[row] = False
                    overlap_R[row] = T.float32(0)
            else:
                own_total = T.int64(0)
                other_total = T.int64(0)
                for i in T.serial(trips):
                    for u in T.unroll(_HELD):
                        token = token_at(i, u)
                        if token < vocabulary:
                            own_total += T.cast(own_law_RV[row, token], "int64")
                            other_total += _other(law_PV, kept_row, token, draft)
                _add_up(own_total, own_sum, warps)
                _add_up(other_total, other_sum, warps)
                rejection = T.int64(0)
                for i in T.serial(trips):
                    for u in T.unroll(_HELD):
                        token = token_at(i, u)
                        if token < vocabulary:
                            own = T.cast(own_law_RV[row, token], "int64") * other_total
                            other = _other(law_PV, kept_row, token, draft) * own_total
                            rejection += T.max(own - other, T.int64(0))
                _add_up(rejection, excess_sum, warps)

                own = T.cast(own_law_RV[row, draft], "int64") * other_total
                other = _other(law_PV, kept_row, draft, draft) * own_total
                uniform = T.cast(
                    law.uniform_bits(seed_R[row], position_R[row], law.ACCEPTANCE_CASE), "float64"
                ) * T.float64(2.0**-53)
                accepted = 0
                if rejection == T.int64(0) or uniform * T.cast(other, "float64") < T.cast(
                    own, "float64"
                ):
                    accepted = 1
                drawn = draft

                if accepted == 0:
                    # Their sum has at most so many bits, so that a point among them fits in int64.
                    exponent = (
                        T.reinterpret(T.cast(rejection, "float64"), "int64") >> T.int64(52)
                    ) - T.int64(1022 + _SUM_BITS)
                    exponent = T.max(exponent, T.int64(0))
                    for i in T.serial(trips):
                        total = T.int64(0)
                        for u in T.unroll(_HELD):
                            token = token_at(i, u)
                            if token < vocabulary:
                                own = T.cast(own_law_RV[row, token], "int64") * other_total
                                other = _other(law_PV, kept_row, token, draft) * own_total
                                total += T.max(own - other, T.int64(0)) >> exponent
                        total = T.warp_reduce_sum(total)
                        if thread % 32 == 0 and i * warps + thread // 32 < groups:
                            chunk[i * warps + thread // 32] = total
                    for i in T.serial(T.ceildiv(groups, tuning.threads)):
                        token = i * tuning.threads + thread
                        if token < groups and token >= trips * warps:
                            chunk[token] = T.int64(0)
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
                    point = law.draw_point(
                        law.uniform_bits(seed_R[row], position_R[row], law.RESIDUAL_CASE), total
                    )
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
                    if thread < CHUNK_TOKENS:
                        size[thread] = T.int64(0)
                        token = first + thread
                        if token < vocabulary:
                            own = T.cast(own_law_RV[row, token], "int64") * other_total
                            other = _other(law_PV, kept_row, token, draft) * own_total
                            size[thread] = T.max(own - other, T.int64(0)) >> exponent
                    T.sync_threads()
                    drawn = -1
                    for i in T.serial(CHUNK_TOKENS):
                        if drawn < 0:
                            if point < size[i]:
                                drawn = first + i
                            else:
                                point -= size[i]

                if thread == 0:
                    overlap_R[row] = T.cast(
                        T.float64(1)
                        - T.cast(rejection, "float64")
                        / (T.cast(own_total, "float64") * T.cast(other_total, "float64")),
                        "float32",
                    )
                    if forced_R[row] >= T.int64(0):
                        accepted_R[row] = forced_R[row] == draft_R[row]
                    else:
                        accepted_R[row] = accepted == 1
                        token_R[row] = T.cast(drawn, "int64")
                        logprob_R[row] = T.cast(
                            T.cast(raw_logits_RV[row, drawn], "float64") - log_total_R[row],
                            "float32",
                        )
                        processed_logprob_R[row] = -T.infinity("float32")
                        if temperature_R[row] <= T.float32(0):
                            if own_law_RV[row, drawn] > 0:
                                processed_logprob_R[row] = T.float32(0)
                        else:
                            share = T.float64(1) / T.cast(temperature_R[row], "float64")
                            if law.survives_cut(
                                logits_RV[row, drawn], drawn, cut_value_R[row], cut_token_R[row]
                            ) and law.power(logits_RV[row, drawn], peak_R[row], share) >= T.cast(
                                min_p_R[row], "float64"
                            ):
                                processed_logprob_R[row] = T.cast(
                                    (T.cast(logits_RV[row, drawn], "float64") - peak_R[row]) * share
                                    - T.log(kept_total_R[row]),
                                    "float32",
                                )

    return sampler_verify_drafts


def _other(law_PV: Any, kept_row: Any, token: Any, draft: Any) -> Any:
    """A draft's law at a token; that of a certain draft is a single 1."""
    kept = T.cast(law_PV[T.max(kept_row, T.int64(0)), token], "int64")
    certain = T.if_then_else(token == draft, T.int64(1), T.int64(0))
    return T.if_then_else(kept_row >= T.int64(0), kept, certain)


@T.macro
def _add_up(sum_: T.Ref, warp_sum: T.SharedBuffer, warps: int) -> None:
    """Make the sum of a thread that of the block; in memory that is used once."""
    thread = T.get_thread_binding()
    sum_ = T.warp_reduce_sum(sum_)
    if thread % 32 == 0:
        warp_sum[thread // 32] = sum_
    T.sync_threads()
    sum_ = T.int64(0)
    for i in T.serial(warps):
        sum_ += warp_sum[i]
