"""How does a kernel in TileLang work out the slots of a decode step?

Shapes: T rows, Q sequences, B blocks of a sequence, W window, N numbers of a row.
"""

from __future__ import annotations

import torch
from deepinfer_core.interfaces.operators.cache import StepSlotsSpec
from deepinfer_core.interfaces.operators.catalogue import Kernels
from deepinfer_core.interfaces.step_slots import EntrySlots, SlotSizes, StepPlaces, StepSlots

from deepinfer_nvidia.kernels import attention_step_slots
from deepinfer_nvidia.kernels.arguments import shaped
from deepinfer_nvidia.kernels.launch import Wanted, launches

__all__ = ["SlotFinder"]

_INT64 = torch.int64


class SlotFinder:
    """One kernel for each set of sizes, of which a model has one.

    Args:
        kernels: runs it.
    """

    def __init__(self, kernels: Kernels) -> None:
        self._find = launches(kernels, _kernel)

    def __call__(self, places: StepPlaces, sizes: SlotSizes) -> StepSlots:
        """The slots, in new memory."""
        rows, (sequences, blocks) = places.position_T.shape[0], places.block_table_QB.shape
        slot_TW = places.position_T.new_empty((rows, sizes.window))
        number_NT = places.position_T.new_empty((4 + 2 * len(sizes.ratios), rows))
        find = self._find(sizes)
        find(
            position_T=shaped(places.position_T, _INT64, rows),
            sequence_T=shaped(places.sequence_T, _INT64, rows),
            state_slot_Q=shaped(places.state_slot_Q, _INT64, sequences),
            start_Q=shaped(places.start_Q, _INT64, sequences),
            row_count_Q=shaped(places.row_count_Q, _INT64, sequences),
            valid_start_Q=shaped(places.valid_start_Q, _INT64, sequences),
            cached_end_Q=shaped(places.cached_end_Q, _INT64, sequences),
            block_table_QB=shaped(places.block_table_QB.contiguous(), _INT64, sequences, blocks),
            slot_TW=slot_TW,
            number_NT=number_NT,
        )
        write_T, pair_T, partner_T, partner_row_T, *of_entries = number_NT.unbind()
        entries = zip(sizes.ratios, of_entries[::2], of_entries[1::2], strict=True)
        return StepSlots(
            write_T=write_T,
            window_TW=slot_TW,
            pair_T=pair_T,
            partner_T=partner_T,
            partner_row_T=partner_row_T,
            entries={
                ratio: EntrySlots(visible_T=visible_T, slot_T=slot_T)
                for ratio, visible_T, slot_T in entries
            },
        )


def _kernel(sizes: SlotSizes) -> Wanted:
    spec = StepSlotsSpec(
        window=sizes.window,
        ring_tokens=sizes.ring_tokens,
        pair_tokens=sizes.pair_tokens,
        block_tokens=sizes.block_tokens,
        ratios=sizes.ratios,
    )
    return attention_step_slots.build, spec, attention_step_slots.default_tuning(spec)
