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

_BITS = radix.DIGIT_BITS
_DIGIT = radix.BINS - 1
_LOW_BITS = 32 - 2 * _BITS
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
            for which in (0, 1, 2, 3, 4):
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
                        digit = -1
                        if order > radix.ABSENT:
                            if which == 0:
                                digit = (order >> (32 - _BITS)) + radix.BINS // 2
                            if which == 1:
                                if (order >> (32 - _BITS)) == (least >> (32 - _BITS)):
                                    digit = (order >> _LOW_BITS) & _DIGIT
                            if which == 2:
                                if (order >> _LOW_BITS) == (least >> _LOW_BITS):
                                    digit = order & ((1 << _LOW_BITS) - 1)
                            if which == 3:
                                if order == least:
                                    digit = place >> _BITS
                            if which == 4:
                                if order == least and (place >> _BITS) == (least_place >> _BITS):
                                    digit = place & _DIGIT
                        if digit >= 0:
                            T.atomic_add(count_LC[digit // 64, digit % 64], 1)
                radix.boundary(count_LC, state, wanted, threads)
                digit = state[0]
                if digit >= 0:
                    wanted = wanted - state[1]
                    if which == 0:
                        least = (digit - radix.BINS // 2) << (32 - _BITS)
                    if which == 1:
                        least = least | (digit << _LOW_BITS)
                    if which == 2:
                        least = least | digit
                    if which == 3:
                        least_place = digit << _BITS
                    if which == 4:
                        least_place = least_place | digit
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
