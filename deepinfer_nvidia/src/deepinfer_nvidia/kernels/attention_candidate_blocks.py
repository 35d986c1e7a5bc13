"""Hide scores outside the candidate pool. Twin: ``deepinfer_core.reference.indexer``, ``restrict``.

A block of threads a row. Scores come into shared memory in their order, from where a thread takes
those of a candidate block. The best score of each block is kept in shared memory, if there are not
too many, and found again in every pass otherwise. The digits of ``radix_select`` find the last
block that belongs to the pool; entries of the others become minus infinity.
"""

from dataclasses import dataclass
from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.cache import CandidateBlocksSpec

from deepinfer_nvidia.kernels import radix_select as radix
from deepinfer_nvidia.kernels.compiler_switches import OWN_BARRIERS
from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["Tuning", "build", "default_tuning"]

_LARGEST = 0x7F7FFFFF  # orders of the largest and the smallest finite number
_SMALLEST = -0x7F800000


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(KernelTuning):
    """How a row is worked on.

    Attributes:
        held_blocks: candidate blocks whose scores fit into shared memory.
    """

    held_blocks: int = 16384


def default_tuning(spec: CandidateBlocksSpec) -> Tuning:
    """Room for the blocks of 131,072 entries at eight a block."""
    return Tuning(threads=512, pass_configs=OWN_BARRIERS)


def build(spec: CandidateBlocksSpec, tuning: Tuning) -> Any:
    """Rows of any number of scores."""
    rows, entries, pool_entries = T.dynamic("rows"), T.dynamic("entries"), T.dynamic("pool_entries")
    threads, held_blocks, size = tuning.threads, tuning.held_blocks, spec.block_entries

    @T.macro
    def measure(
        pool_score_TS: T.Tensor,
        row: T.int32,
        turn: T.int32,
        visible: T.int32,
        staged: T.SharedBuffer,
        found: T.LocalBuffer,
    ) -> None:
        """The order of the best visible score of a thread's block; the last one is above all."""
        thread = T.get_thread_binding()
        number = turn * threads + thread
        T.sync_threads()
        for u in T.unroll(size):
            entry = (turn * size + u) * threads + thread
            staged[u * threads + thread] = T.if_then_else(
                entry < T.min(visible, pool_entries), pool_score_TS[row, entry], 0.0
            )
        T.sync_threads()
        found[0] = radix.ABSENT
        if number * size < visible:
            for j in T.unroll(size):
                order = radix.order_of(staged[thread * size + j])
                found[0] = T.max(found[0], T.min(T.max(order, _SMALLEST), _LARGEST))
        if number + 1 == T.ceildiv(visible, size):
            found[0] = radix.HIGHEST

    @T.prim_func
    def attention_candidate_blocks(
        pool_score_TS: T.Tensor((rows, pool_entries), "float32"),
        visible_T: T.Tensor((rows,), "int64"),
        score_TS: T.Tensor((rows, entries), "float32"),
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
            held = T.alloc_shared((held_blocks,), "int32")
            staged = T.alloc_shared((threads * size,), "float32")
            is_kept = T.alloc_shared((threads,), "int32")
            found = T.alloc_local((1,), "int32")
            number = T.alloc_var("int32")
            digit = T.alloc_var("int32")
            wanted = T.alloc_var("int32")
            least = T.alloc_var("int32")
            least_place = T.alloc_var("int32")
            visible = T.alloc_var("int32")
            turns = T.alloc_var("int32")
            is_held = T.alloc_var("int32")
            visible = T.cast(visible_T[row], "int32")
            turns = T.ceildiv(T.ceildiv(T.max(entries, pool_entries), size), threads)
            is_held = T.if_then_else(turns * threads <= held_blocks, 1, 0)
            wanted = spec.top_blocks
            least = radix.ABSENT + 1
            least_place = 0
            digit = 0
            for which in radix.PASSES:
                if which == 0 or (digit >= 0 and state[2] != wanted):
                    radix.clear(count_LC, state, threads)
                    for turn in T.serial(turns):
                        number = turn * threads + thread
                        if which == 0 or is_held == 0:
                            measure(pool_score_TS, row, turn, visible, staged, found)
                        else:
                            found[0] = held[number]
                        if which == 0 and is_held == 1:
                            held[number] = found[0]
                        takes_part, value = radix.candidate_digit(
                            which, found[0], radix.LAST_PLACE - number, least, least_place
                        )
                        if takes_part:
                            number = value
                            T.atomic_add(count_LC[number // radix.LINE, number % radix.LINE], 1)
                    radix.boundary(
                        count_LC, from_here_LC, of_line_L, from_line_L, state, wanted, threads
                    )
                    digit = state[0]
                    if digit >= 0:
                        wanted = wanted - state[1]
                        if which < 3:
                            least = radix.refined(which, digit, least, least_place)[0]
                        else:
                            least_place = radix.refined(which, digit, least, least_place)[1]
            for turn in T.serial(turns):
                number = turn * threads + thread
                if is_held == 1:
                    found[0] = held[number]
                else:
                    measure(pool_score_TS, row, turn, visible, staged, found)
                T.sync_threads()
                is_kept[thread] = T.if_then_else(
                    found[0] > least
                    or (found[0] == least and radix.LAST_PLACE - number >= least_place),
                    1,
                    0,
                )
                T.sync_threads()
                for u in T.unroll(size):
                    number = (turn * size + u) * threads + thread
                    if number < entries and is_kept[(u * threads + thread) // size] == 0:
                        score_TS[row, number] = -T.infinity("float32")

    return attention_candidate_blocks
