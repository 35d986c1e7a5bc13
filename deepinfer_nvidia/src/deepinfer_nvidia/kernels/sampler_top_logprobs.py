"""The best tokens of the raw law. Twin: ``deepinfer_core.reference.sampler``.

A block a row: it gathers a beginning of the row's order, and a thread a token counts how many come
before. Where too many tokens are equal to be gathered, the best ones are looked for one by one.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.sampler import (
    CANDIDATES,
    SHORT_TOKENS,
    TopLogprobsSpec,
)

from deepinfer_nvidia.kernels import best_tokens as best
from deepinfer_nvidia.kernels.compiler_switches import OWN_BARRIERS
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["build", "default_tuning"]


def default_tuning(_spec: TopLogprobsSpec) -> KernelTuning:
    """A thread a candidate."""
    return KernelTuning(threads=best.THREADS, pass_configs=OWN_BARRIERS)


def build(spec: TopLogprobsSpec, tuning: KernelTuning) -> Any:
    """Rows of ``spec.vocabulary`` logits of ``spec.raw_dtype``."""
    rows = T.dynamic("rows")
    vocabulary, dtype, alternatives = spec.vocabulary, spec.raw_dtype, spec.alternatives
    held, threads = CANDIDATES, tuning.threads
    infinity = T.infinity("float64")

    @T.prim_func
    def sampler_top_logprobs(
        raw_logits_RV: T.Tensor((rows, vocabulary), dtype),
        group_RG: T.Tensor((rows, spec.groups), dtype),
        log_total_R: T.Tensor((rows,), "float64"),
        invalid_R: T.Tensor((rows,), "bool"),
        top_token_RA: T.Tensor((rows, alternatives), "int64"),
        top_logprob_RA: T.Tensor((rows, alternatives), "float32"),
    ) -> None:
        with T.Kernel(rows, threads=threads) as row:
            thread = T.get_thread_binding()
            value = T.alloc_shared((held,), "float64")
            token = T.alloc_shared((held,), "int32")
            threshold = T.alloc_shared((1,), dtype)
            counts = T.alloc_shared((2,), "int32")
            peak = T.alloc_shared((threads // 32,), "float64")
            first = T.alloc_shared((1,), "int32")
            wanted = T.alloc_var("int32")
            rank = T.alloc_var("int32")
            x = T.alloc_var("float64")
            mine = T.alloc_var("float64")
            place = T.alloc_var("int32")
            last = T.alloc_var("float64")
            last_token = T.alloc_var("int32")

            wanted = T.min(alternatives, SHORT_TOKENS)
            if invalid_R[row]:
                wanted = 0
            best.gather_best(
                raw_logits_RV, group_RG, row, wanted, vocabulary, value, token, threshold, counts
            )
            if counts[0] <= held and counts[0] >= alternatives:
                if thread < counts[0]:
                    rank = 0
                    for i in T.serial(counts[0]):
                        if best.is_before(value[i], token[i], value[thread], token[thread]):
                            rank += 1
                    if rank < alternatives:
                        top_token_RA[row, rank] = T.cast(token[thread], "int64")
                        top_logprob_RA[row, rank] = T.cast(
                            value[thread] - log_total_R[row], "float32"
                        )
            elif wanted > 0:
                # The next one in the row's order, as often as needed.
                last = infinity
                last_token = -1
                for a in T.serial(alternatives):
                    mine = -infinity
                    place = vocabulary
                    for i in T.serial(T.ceildiv(vocabulary, threads)):
                        if i * threads + thread < vocabulary:
                            x = T.cast(raw_logits_RV[row, i * threads + thread], "float64")
                            if best.is_before(
                                last, last_token, x, i * threads + thread
                            ) and best.is_before(x, i * threads + thread, mine, place):
                                mine = x
                                place = i * threads + thread
                    x = T.warp_reduce_max(mine)
                    if thread % 32 == 0:
                        peak[thread // 32] = x
                    if thread == 0:
                        first[0] = vocabulary
                    T.sync_threads()
                    last = peak[0]
                    for i in T.unroll(1, threads // 32):
                        last = T.max(last, peak[i])
                    if mine == last:
                        T.atomic_min(first[0], place)
                    T.sync_threads()
                    last_token = first[0]
                    if thread == 0:
                        top_token_RA[row, a] = T.cast(last_token, "int64")
                        top_logprob_RA[row, a] = T.cast(last - log_total_R[row], "float32")
                    T.sync_threads()

    return sampler_top_logprobs
