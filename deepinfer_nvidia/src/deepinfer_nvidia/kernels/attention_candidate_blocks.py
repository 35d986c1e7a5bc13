"""Hide scores outside the candidate pool. Twin: ``deepinfer_core.reference.indexer``, ``restrict``.

A block of threads a row. The best score of each candidate block is kept in shared memory, if there
are not too many, and read again from the scores otherwise. The digits of ``radix_select`` find the
last block that belongs to the pool; entries of the others become minus infinity.
"""

from dataclasses import dataclass
from typing import Any

import tilelang.language as T

from deepinfer_core.interfaces.operators.cache import CandidateBlocksSpec
from deepinfer_nvidia.kernels import radix_select as radix
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
    return Tuning(threads=512, pass_configs=radix.PASS_CONFIGS)


def build(spec: CandidateBlocksSpec, tuning: Tuning) -> Any:
    """Rows of any number of scores."""
    rows, entries, pool_entries = T.dynamic("rows"), T.dynamic("entries"), T.dynamic("pool_entries")
    threads, held_blocks, size = tuning.threads, tuning.held_blocks, spec.block_entries

    @T.prim_func
    def attention_candidate_blocks(
        pool_score_TS: T.Tensor((rows, pool_entries), "float32"),
        visible_T: T.Tensor((rows,), "int64"),
        score_TS: T.Tensor((rows, entries), "float32"),
    ) -> None:
        with T.Kernel(rows, threads=threads) as row:
            thread = T.get_thread_binding()
            count_LC = T.alloc_shared((radix.BINS // 64, 64), "int32")
            state = T.alloc_shared((4,), "int32")
            held = T.alloc_shared((held_blocks,), "int32")
            order = T.alloc_var("int32")
            number = T.alloc_var("int32")
            place = T.alloc_var("int32")
            digit = T.alloc_var("int32")
            wanted = T.alloc_var("int32")
            least = T.alloc_var("int32")
            least_place = T.alloc_var("int32")
            visible = T.alloc_var("int32")
            blocks = T.alloc_var("int32")
            is_held = T.alloc_var("int32")
            steps = T.alloc_var("int32")
            visible = T.cast(visible_T[row], "int32")
            blocks = T.ceildiv(T.max(entries, pool_entries), size)
            is_held = T.if_then_else(blocks <= held_blocks, 1, 0)
            wanted = spec.top_blocks
            least = radix.ABSENT + 1
            least_place = 0
            digit = 0
            for which in radix.PASSES:
                steps = T.if_then_else(digit >= 0, T.ceildiv(blocks, threads), 0)
                if which >= 3:
                    steps = T.if_then_else(state[2] == wanted, 0, steps)
                radix.clear(count_LC, state, threads)
                for i in T.serial(steps):
                    number = i * threads + thread
                    if number < blocks:
                        if which == 0 or is_held == 0:
                            order = radix.ABSENT
                            for j in T.serial(size):
                                if number * size + j < T.min(visible, pool_entries):
                                    found = radix.order_of(pool_score_TS[row, number * size + j])
                                    order = T.max(order, T.min(T.max(found, _SMALLEST), _LARGEST))
                            if visible > 0 and number == (visible - 1) // size:
                                order = radix.HIGHEST
                        else:
                            order = held[number]
                        if which == 0 and is_held == 1:
                            held[number] = order
                        place = radix.LAST_PLACE - number
                        takes_part, value = radix.candidate_digit(
                            which, order, place, least, least_place
                        )
                        if takes_part:
                            digit = value
                            T.atomic_add(count_LC[digit // 64, digit % 64], 1)
                radix.boundary(count_LC, state, wanted, threads)
                digit = state[0]
                if digit >= 0:
                    wanted = wanted - state[1]
                    if which < 3:
                        least = radix.refined(which, digit, least, least_place)[0]
                    else:
                        least_place = radix.refined(which, digit, least, least_place)[1]
            for i in T.serial(T.ceildiv(blocks, threads)):
                number = i * threads + thread
                if number < blocks:
                    if is_held == 1:
                        order = held[number]
                    else:
                        order = radix.ABSENT
                        for j in T.serial(size):
                            if number * size + j < T.min(visible, pool_entries):
                                found = radix.order_of(pool_score_TS[row, number * size + j])
                                order = T.max(order, T.min(T.max(found, _SMALLEST), _LARGEST))
                        if visible > 0 and number == (visible - 1) // size:
                            order = radix.HIGHEST
                    if (
                        order < least
                        or order == radix.ABSENT
                        or (order == least and radix.LAST_PLACE - number < least_place)
                    ):
                        for j in T.serial(size):
                            if number * size + j < entries:
                                score_TS[row, number * size + j] = -T.infinity("float32")

    return attention_candidate_blocks
