"""Slots of a decode step. Twin: ``deepinfer_core.model``, ``window_step`` and its like.

A block has a row, and a thread a place of its window; the first thread works out the rest. Where
the twin leaves a mask out because the host knows it to be true, it is true here.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.cache import StepSlotsSpec

from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["build", "default_tuning"]


def default_tuning(_spec: StepSlotsSpec) -> KernelTuning:
    """A thread for each key of the model's window."""
    return KernelTuning(threads=128)


def build(spec: StepSlotsSpec, tuning: KernelTuning) -> Any:
    """Rows of any number of sequences."""
    rows, sequences, blocks = T.dynamic("rows"), T.dynamic("sequences"), T.dynamic("blocks")
    window, threads, ring, pair = spec.window, tuning.threads, spec.ring_tokens, spec.pair_tokens
    ratios = tuple(enumerate(spec.ratios))

    @T.prim_func
    def attention_step_slots(
        position_T: T.Tensor((rows,), "int64"),
        sequence_T: T.Tensor((rows,), "int64"),
        state_slot_Q: T.Tensor((sequences,), "int64"),
        start_Q: T.Tensor((sequences,), "int64"),
        row_count_Q: T.Tensor((sequences,), "int64"),
        valid_start_Q: T.Tensor((sequences,), "int64"),
        cached_end_Q: T.Tensor((sequences,), "int64"),
        block_table_QB: T.Tensor((sequences, blocks), "int64"),
        slot_TW: T.Tensor((rows, window), "int64"),
        number_NT: T.Tensor((4 + 2 * len(ratios), rows), "int64"),
    ) -> None:
        with T.Kernel(rows, threads=threads) as row:
            let_next_start(rows)
            T.pdl_sync()
            thread = T.get_thread_binding()
            position = T.alloc_var("int64")
            sequence = T.alloc_var("int64")
            state = T.alloc_var("int64")
            first = T.alloc_var("int64")
            page = T.alloc_var("int64")
            position = position_T[row]
            sequence = sequence_T[row]
            state = state_slot_Q[sequence]
            first = valid_start_Q[sequence]
            for trip in T.unroll(-(-window // threads)):
                place = trip * threads + thread
                if place < window:
                    seen = position - (window - 1) + place
                    slot_TW[row, place] = T.if_then_else(
                        seen >= first, state * ring + seen % ring, T.int64(-1)
                    )
            if thread == 0:
                number_NT[0, row] = T.if_then_else(
                    position >= first, state * ring + position % ring, T.int64(-1)
                )
                number_NT[1, row] = T.if_then_else(
                    position >= start_Q[sequence] + row_count_Q[sequence] - pair,
                    state * pair + position % pair,
                    T.int64(-1),
                )
                number_NT[2, row] = state * pair + (position - 1) % pair
                number_NT[3, row] = T.if_then_else(
                    position == start_Q[sequence], T.int64(-1), T.cast(row, "int64") - 1
                )
                page = block_table_QB[sequence, position // spec.block_tokens]
                for number, ratio in ratios:
                    per_block = spec.block_tokens // ratio
                    completes = (
                        (position % ratio == ratio - 1)
                        and (page >= 0)
                        and (position >= cached_end_Q[sequence])
                    )
                    number_NT[4 + 2 * number, row] = (position + 1) // ratio
                    number_NT[5 + 2 * number, row] = T.if_then_else(
                        completes, page * per_block + position // ratio % per_block, T.int64(-1)
                    )

    return attention_step_slots
