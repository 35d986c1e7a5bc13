"""Which numbers name the slots that the rows of a decode step read and write?

In such a step every row reads its window from the ring of its sequence, and the ring may be written
first. Everything follows from positions, the block table and a few sizes, for all layers at once.

Shapes: T rows, Q sequences, B blocks of a sequence, W window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["EntrySlots", "SlotSizes", "StepPlaces", "StepSlots"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSizes:
    """What slots are counted in.

    Attributes:
        window: keys that a row sees, itself included.
        ring_tokens: rows of a ring of window keys.
        pair_tokens: rows of a ring of raw gates and values.
        block_tokens: tokens of a block.
        ratios: tokens of an entry, for each kind of entries.
    """

    window: int
    ring_tokens: int
    pair_tokens: int
    block_tokens: int
    ratios: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlaces:
    """Where the rows of a step stand; all int64.

    Attributes:
        position_T: positions.
        sequence_T: sequence of each row; rows of a sequence are adjacent.
        state_slot_Q: state slots.
        start_Q: first position of each sequence in this step.
        row_count_Q: rows of each sequence.
        valid_start_Q: first position whose window keys exist.
        cached_end_Q: position behind the last whose entries are cached.
        block_table_QB: block ids, -1 behind a sequence's last block.
    """

    position_T: torch.Tensor
    sequence_T: torch.Tensor
    state_slot_Q: torch.Tensor
    start_Q: torch.Tensor
    row_count_Q: torch.Tensor
    valid_start_Q: torch.Tensor
    cached_end_Q: torch.Tensor
    block_table_QB: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySlots:
    """Entries of one ratio; int64.

    Attributes:
        visible_T: entries that each row sees.
        slot_T: slot of the entry that a row completes; -1 if it completes none, or a cached one.
    """

    visible_T: torch.Tensor
    slot_T: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSlots:
    """The slots; int64, without gaps.

    Attributes:
        write_T: ring slot of each row's own window key; -1 in front of the first valid position.
        window_TW: ring slots of the keys that a row sees, the earliest first; -1 for none.
        pair_T: slot of each row's own gate and value; -1 if a later row takes its place.
        partner_T: slot of those of the position before.
        partner_row_T: row of this step at the position before, or -1.
        entries: by ratio.
    """

    write_T: torch.Tensor
    window_TW: torch.Tensor
    pair_T: torch.Tensor
    partner_T: torch.Tensor
    partner_row_T: torch.Tensor
    entries: Mapping[int, EntrySlots]
