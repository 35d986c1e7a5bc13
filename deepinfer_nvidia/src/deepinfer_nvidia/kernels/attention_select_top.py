"""Keep the best entries of a row. Twin: ``deepinfer_core.reference.indexer``, ``select``.

A block a row. The first digit is counted over all scores. What is not below its boundary is then
copied to shared memory, if it fits, so that scores are read twice; the other digits look at the
copy. Where too many share the first digit, they look at the scores again. The chosen ones are
gathered in any order; each is then written behind as many as have a lower index.
"""

from dataclasses import dataclass
from typing import Any

import tilelang.language as T

from deepinfer_core.interfaces.operators.cache import SelectTopSpec
from deepinfer_nvidia.kernels import radix_select as radix
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["MOST_ENTRIES", "Tuning", "build", "default_tuning"]

MOST_ENTRIES = radix.LAST_PLACE + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(KernelTuning):
    """How a row is worked on.

    Attributes:
        candidates: scores that fit into the copy.
        unroll: scores that a thread asks for at once.
    """

    candidates: int = 4096
    unroll: int = 8


def default_tuning(spec: SelectTopSpec) -> Tuning:
    """All threads that a block can have; a copy for at least what is kept."""
    return Tuning(
        threads=1024,
        candidates=max(4096, spec.top_entries),
        pass_configs=radix.PASS_CONFIGS,
    )


def build(spec: SelectTopSpec, tuning: Tuning) -> Any:
    """Rows of any number of scores."""
    rows, entries = T.dynamic("rows"), T.dynamic("entries")
    threads, unroll, candidates = tuning.threads, tuning.unroll, tuning.candidates
    kept = spec.top_entries
    span = threads * unroll

    @T.prim_func
    def attention_select_top(
        score_TS: T.Tensor((rows, entries), "float32"),
        index_TL: T.Tensor((rows, kept), "int64"),
    ) -> None:
        with T.Kernel(rows, threads=threads) as row:
            thread = T.get_thread_binding()
            count_LC = T.alloc_shared((radix.BINS // 64, 64), "int32")
            state = T.alloc_shared((4,), "int32")
            copied_order = T.alloc_shared((candidates,), "int32")
            copied_index = T.alloc_shared((candidates,), "int32")
            chosen = T.alloc_shared((kept,), "int32")
            filled = T.alloc_shared((2,), "int32")
            x = T.alloc_local((unroll,), "float32")
            order = T.alloc_var("int32")
            index = T.alloc_var("int32")
            place = T.alloc_var("int32")
            slot = T.alloc_var("int32")
            wanted = T.alloc_var("int32")
            digit = T.alloc_var("int32")
            least = T.alloc_var("int32")
            least_place = T.alloc_var("int32")
            is_copied = T.alloc_var("int32")
            sources = T.alloc_var("int32")
            matches = T.alloc_var("int32")

            radix.clear(count_LC, state, threads)
            if thread < 2:
                filled[thread] = 0
            for i in T.serial(T.ceildiv(entries, span)):
                for u in T.unroll(unroll):
                    index = (i * unroll + u) * threads + thread
                    x[u] = -T.infinity("float32")
                    if index < entries:
                        x[u] = score_TS[row, index]
                for u in T.unroll(unroll):
                    order = radix.order_of(x[u])
                    if order > radix.ABSENT:
                        digit = radix.candidate_digit(0, order, 0, 0, 0)[1]
                        T.atomic_add(count_LC[digit // 64, digit % 64], 1)
            radix.boundary(count_LC, state, kept, threads)

            # Candidates: everything present if there are fewer than wanted.
            digit = state[0]
            wanted = kept
            is_copied = 1
            least = radix.ABSENT + 1
            if digit >= 0:
                wanted = kept - state[1]
                least = radix.refined(0, digit, 0, 0)[0]
                if state[1] + state[2] > candidates:
                    is_copied = 0
            for i in T.serial(T.if_then_else(is_copied == 1, T.ceildiv(entries, span), 0)):
                for u in T.unroll(unroll):
                    index = (i * unroll + u) * threads + thread
                    x[u] = -T.infinity("float32")
                    if index < entries:
                        x[u] = score_TS[row, index]
                for u in T.unroll(unroll):
                    order = radix.order_of(x[u])
                    if order >= least and order > radix.ABSENT:
                        place = T.atomic_add(filled[0], 1, return_prev=True)
                        copied_order[place] = order
                        copied_index[place] = (i * unroll + u) * threads + thread
            T.sync_threads()
            sources = T.if_then_else(is_copied == 1, filled[0], entries)

            # The other digits of the score, then those of the position where scores are equal.
            least_place = 0
            for number in radix.PASSES[1:]:
                matches = T.if_then_else(digit >= 0, T.ceildiv(sources, threads), 0)
                if number >= 3:
                    # Nothing to decide if all equal ones are wanted.
                    matches = T.if_then_else(state[2] == wanted, 0, matches)
                radix.clear(count_LC, state, threads)
                for i in T.serial(matches):
                    index = i * threads + thread
                    if index < sources:
                        if is_copied == 1:
                            order = copied_order[index]
                            place = radix.LAST_PLACE - copied_index[index]
                        else:
                            order = radix.order_of(score_TS[row, index])
                            place = radix.LAST_PLACE - index
                        takes_part, value = radix.candidate_digit(
                            number, order, place, least, least_place
                        )
                        if takes_part:
                            digit = value
                            T.atomic_add(count_LC[digit // 64, digit % 64], 1)
                radix.boundary(count_LC, state, wanted, threads)
                digit = state[0]
                if digit >= 0:
                    wanted = wanted - state[1]
                    if number < 3:
                        least = radix.refined(number, digit, least, least_place)[0]
                    else:
                        least_place = radix.refined(number, digit, least, least_place)[1]

            for i in T.serial(T.ceildiv(sources, threads)):
                index = i * threads + thread
                if index < sources:
                    if is_copied == 1:
                        order = copied_order[index]
                        place = copied_index[index]
                    else:
                        order = radix.order_of(score_TS[row, index])
                        place = index
                    if order > radix.ABSENT and (
                        order > least
                        or (order == least and radix.LAST_PLACE - place >= least_place)
                    ):
                        slot = T.atomic_add(filled[1], 1, return_prev=True)
                        chosen[slot] = place
            T.sync_threads()
            sources = filled[1]
            for i in T.serial(T.ceildiv(kept, threads)):
                index = i * threads + thread
                if index < kept:
                    if index < sources:
                        place = 0
                        for other in T.serial(sources):
                            if chosen[other] < chosen[index]:
                                place += 1
                        index_TL[row, place] = T.cast(chosen[index], "int64")
                    else:
                        index_TL[row, index] = T.cast(-1, "int64")

    return attention_select_top
