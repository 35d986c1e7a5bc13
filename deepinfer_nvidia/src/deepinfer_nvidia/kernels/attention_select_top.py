"""Keep the best entries of a row. Twin: ``deepinfer_core.reference.indexer``, ``select``.

A block a row. The first digit is counted over all scores. What is not below its boundary is then
copied to shared memory, if it fits, so that scores are read twice; the other digits look at the
copy. Where too many share the first digit, they look at the scores again. Each lane of a warp fills
a part of the copy of its own, so that lanes do not wait for each other. The chosen ones are
gathered in any order; each is then written behind as many as have a lower index.
"""

from dataclasses import dataclass
from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.cache import SelectTopSpec

from deepinfer_nvidia.kernels import radix_select as radix
from deepinfer_nvidia.kernels.compiler_switches import OWN_BARRIERS
from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["MOST_ENTRIES", "Tuning", "build", "default_tuning"]

MOST_ENTRIES = radix.LAST_PLACE + 1
_LANES = 32
_NOBODY = 0x7FFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(KernelTuning):
    """How a row is worked on.

    Attributes:
        candidates: scores that fit into the copy; a multiple of 32.
        unroll: scores that a thread asks for at once.
    """

    candidates: int = 8192
    unroll: int = 16


def default_tuning(spec: SelectTopSpec) -> Tuning:
    """All threads that a block can have; a copy for twice what is kept, at least."""
    return Tuning(
        threads=1024,
        candidates=max(8192, -(-2 * spec.top_entries // _LANES) * _LANES),
        pass_configs=OWN_BARRIERS,
    )


def build(spec: SelectTopSpec, tuning: Tuning) -> Any:
    """Rows of any number of scores."""
    rows, entries = T.dynamic("rows"), T.dynamic("entries")
    threads, unroll, candidates = tuning.threads, tuning.unroll, tuning.candidates
    kept = spec.top_entries
    span = threads * unroll
    deep = candidates // _LANES
    kept_in_fours = -(-kept // 4) * 4

    @T.macro
    def fetch(score_TS: T.Tensor, row: T.int32, number: T.int32, x: T.LocalBuffer) -> None:
        """Ask for some scores, a thread every ``threads``-th."""
        for u in T.unroll(unroll):
            place = (number * unroll + u) * threads + T.get_thread_binding()
            x[u] = -T.infinity("float32")
            if place < entries:
                x[u] = score_TS[row, place]

    @T.macro
    def candidate(
        score_TS: T.Tensor,
        row: T.int32,
        number: T.int32,
        sources: T.int32,
        is_copied: T.int32,
        copy: T.SharedBuffer,
        filled: T.SharedBuffer,
        found: T.LocalBuffer,
    ) -> None:
        """Order and index of a candidate; an empty place of the copy is absent."""
        found[0] = radix.ABSENT
        found[1] = number
        if number < sources:
            if is_copied == 1:
                if number // _LANES < filled[number % _LANES]:
                    found[0] = copy[0, number]
                    found[1] = copy[1, number]
            else:
                found[0] = radix.order_of(score_TS[row, number])

    @T.prim_func
    def attention_select_top(
        score_TS: T.Tensor((rows, entries), "float32"),
        index_TL: T.Tensor((rows, kept), "int64"),
    ) -> None:
        with T.Kernel(rows, threads=threads) as row:
            let_next_start(rows)
            T.pdl_sync()
            thread = T.get_thread_binding()
            count_LC = T.alloc_shared((radix.LINES, radix.LINE), "int32")
            from_here_LC = T.alloc_shared((radix.LINES, radix.LINE), "int32")
            of_line_L = T.alloc_shared((radix.LINES,), "int32")
            from_line_L = T.alloc_shared((radix.LINES + 1,), "int32")
            state = T.alloc_shared((4,), "int32")
            copy = T.alloc_shared((2, candidates), "int32")
            chosen = T.alloc_shared((kept_in_fours,), "int32")
            filled = T.alloc_shared((_LANES,), "int32")
            deepest = T.alloc_shared((2,), "int32")
            x = T.alloc_local((unroll,), "float32")
            others = T.alloc_local((4,), "int32")
            found = T.alloc_local((2,), "int32")
            index = T.alloc_var("int32")
            place = T.alloc_var("int32")
            wanted = T.alloc_var("int32")
            digit = T.alloc_var("int32")
            least = T.alloc_var("int32")
            least_place = T.alloc_var("int32")
            is_copied = T.alloc_var("int32")
            sources = T.alloc_var("int32")
            slot = T.alloc_var("int32")

            radix.clear(count_LC, state, threads)
            if thread < _LANES:
                filled[thread] = 0
            if thread < 2:
                deepest[thread] = 0
            for i in T.serial(T.ceildiv(entries, span)):
                fetch(score_TS, row, i, x)
                for u in T.unroll(unroll):
                    if x[u] > -T.infinity("float32"):
                        digit = radix.candidate_digit(0, radix.order_of(x[u]), 0, 0, 0)[1]
                        T.atomic_add(count_LC[digit // radix.LINE, digit % radix.LINE], 1)
            radix.boundary(count_LC, from_here_LC, of_line_L, from_line_L, state, kept, threads)

            # Candidates: everything present if there are fewer than wanted.
            digit = state[0]
            wanted = kept
            least = radix.ABSENT + 1
            least_place = 0
            is_copied = 1
            if digit >= 0:
                wanted = kept - state[1]
                least = radix.refined(0, digit, 0, 0)[0]
                if state[1] + state[2] > candidates:
                    is_copied = 0
            if is_copied == 1:
                for i in T.serial(T.ceildiv(entries, span)):
                    fetch(score_TS, row, i, x)
                    for u in T.unroll(unroll):
                        if x[u] >= radix.value_of(least):
                            slot = T.atomic_add(filled[thread % _LANES], 1, return_prev=True)
                            if slot < deep:
                                place = slot * _LANES + thread % _LANES
                                copy[0, place] = radix.order_of(x[u])
                                copy[1, place] = (i * unroll + u) * threads + thread
            T.sync_threads()
            if thread < _LANES:
                T.atomic_max(deepest[0], filled[thread])
            T.sync_threads()
            if deepest[0] > deep:
                is_copied = 0
            sources = T.if_then_else(is_copied == 1, deepest[0] * _LANES, entries)

            # The other digits of the score, then those of the position where scores are equal, as
            # long as not all that share the last digit are wanted.
            for number in radix.PASSES[1:]:
                if digit >= 0 and state[2] != wanted:
                    radix.clear(count_LC, state, threads)
                    for i in T.serial(T.ceildiv(sources, threads)):
                        number_of = i * threads + thread
                        candidate(score_TS, row, number_of, sources, is_copied, copy, filled, found)
                        takes_part, value = radix.candidate_digit(
                            number, found[0], radix.LAST_PLACE - found[1], least, least_place
                        )
                        if takes_part:
                            slot = value
                            T.atomic_add(count_LC[slot // radix.LINE, slot % radix.LINE], 1)
                    radix.boundary(
                        count_LC, from_here_LC, of_line_L, from_line_L, state, wanted, threads
                    )
                    wanted = wanted - state[1]
                    if number < 3:
                        least = radix.refined(number, state[0], least, least_place)[0]
                    else:
                        least_place = radix.refined(number, state[0], least, least_place)[1]

            T.sync_threads()
            for i in T.serial(T.ceildiv(kept_in_fours, threads)):
                if i * threads + thread < kept_in_fours:
                    chosen[i * threads + thread] = _NOBODY
            T.sync_threads()
            for i in T.serial(T.ceildiv(sources, threads)):
                number_of = i * threads + thread
                candidate(score_TS, row, number_of, sources, is_copied, copy, filled, found)
                if found[0] > least or (
                    found[0] == least and radix.LAST_PLACE - found[1] >= least_place
                ):
                    slot = T.atomic_add(deepest[1], 1, return_prev=True)
                    chosen[slot] = found[1]
            T.sync_threads()
            sources = deepest[1]
            for i in T.serial(T.ceildiv(kept, threads)):
                index = i * threads + thread
                if index < sources:
                    place = 0
                    for four in T.serial(T.ceildiv(sources, 4)):
                        for j in T.vectorized(4):
                            others[j] = chosen[four * 4 + j]
                        for j in T.unroll(4):
                            place += T.if_then_else(others[j] < chosen[index], 1, 0)
                    index_TL[row, place] = T.cast(chosen[index], "int64")
                if index >= sources and index < kept:
                    index_TL[row, index] = T.cast(-1, "int64")

    return attention_select_top
