"""Which lists of entries does the kernel get that finds their slots?

Shapes: T rows, L listed entries, Q sequences, B blocks of a sequence.
"""

from __future__ import annotations

import torch

from deepinfer_core.interfaces.operators.cache import EntrySlotsSpec
from deepinfer_core.reference.attention import ReferenceAttention
from deepinfer_core.testing.kernel_cases.case import KernelCase, Tensors, poisoned

__all__ = ["cases"]

_TWIN = ReferenceAttention()


def cases() -> list[KernelCase]:
    """Lists with and without gaps, more of them than a block has threads, the model's sizes."""
    return [
        _slots(rows=1, length=1, sequences=1, blocks=1, per_block=1),
        _slots(rows=5, length=9, sequences=3, blocks=4, per_block=16),
        _slots(rows=3, length=150, sequences=2, blocks=7, per_block=64),
        _slots(rows=2, length=7, sequences=2, blocks=2, per_block=8, absent=1.0),
        _slots(rows=64, length=512, sequences=64, blocks=64, per_block=64, small=False),
    ]


def _slots(
    *,
    rows: int,
    length: int,
    sequences: int,
    blocks: int,
    per_block: int,
    absent: float = 0.2,
    small: bool = True,
) -> KernelCase:
    def arguments(generator: torch.Generator) -> Tensors:
        shape = (rows, length)
        entry_TL = torch.randint(0, blocks * per_block, shape, generator=generator)
        is_absent_TL = torch.rand(shape, generator=generator) < absent
        # Beyond what int32 holds, as slots of large caches are.
        block_table_QB = torch.randint(1, 1 << 32, (sequences, blocks), generator=generator)
        return {
            "entry_TL": entry_TL.masked_fill(is_absent_TL, -1),
            "block_table_QB": block_table_QB,
            "sequence_T": torch.randint(0, sequences, (rows,), generator=generator),
            "slot_TL": poisoned(rows, length, dtype=torch.int64),
        }

    def expect(given: Tensors) -> Tensors:
        inputs = given["entry_TL"], given["block_table_QB"], given["sequence_T"]
        _TWIN.entry_slots(*inputs, per_block, given["slot_TL"])
        return {"slot_TL": given["slot_TL"]}

    return KernelCase(
        operator="attention_entry_slots",
        name=f"{length}-entries-of-{blocks}-blocks-of-{per_block}-rows-{rows}",
        spec=EntrySlotsSpec(entries_per_block=per_block),
        arguments=arguments,
        expect=expect,
        small=small,
        moved_bytes=0 if small else 16 * rows * length,
    )
