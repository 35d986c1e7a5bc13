"""Slots of listed entries. Twin: ``interfaces.attention``, ``CacheCodec.entry_slots``.

A thread an entry: it finds the page of the entry's block.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.cache import EntrySlotsSpec

from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["build", "default_tuning"]


def default_tuning(_spec: EntrySlotsSpec) -> KernelTuning:
    """Small blocks: rows are few where time counts most."""
    return KernelTuning(threads=128)


def build(spec: EntrySlotsSpec, tuning: KernelTuning) -> Any:
    """Lists of any length."""
    rows, length = T.dynamic("rows"), T.dynamic("length")
    sequences, blocks = T.dynamic("sequences"), T.dynamic("blocks")
    per_block = spec.entries_per_block

    @T.prim_func
    def attention_entry_slots(
        entry_TL: T.Tensor((rows, length), "int64"),
        block_table_QB: T.Tensor((sequences, blocks), "int64"),
        sequence_T: T.Tensor((rows,), "int64"),
        slot_TL: T.Tensor((rows, length), "int64"),
    ) -> None:
        with T.Kernel(T.ceildiv(rows * length, tuning.threads), threads=tuning.threads) as block:
            let_next_start(rows)
            T.pdl_sync()
            index = block * tuning.threads + T.get_thread_binding()
            row = index // length
            place = index % length
            entry = T.alloc_var("int32")
            slot = T.alloc_var("int64")
            if index < rows * length:
                entry = T.cast(entry_TL[row, place], "int32")
                slot = T.int64(-1)
                if entry >= 0:
                    page = block_table_QB[sequence_T[row], entry // per_block]
                    slot = page * per_block + entry % per_block
                slot_TL[row, place] = slot

    return attention_entry_slots
