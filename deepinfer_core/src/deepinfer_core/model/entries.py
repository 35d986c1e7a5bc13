"""Which compressed entries does each row of a step complete and see, and where are they?

Entry g of a layer with ratio r stands for the tokens from ``g * r`` on; it is written by the row
that brings its last token, and seen by that row and all later ones. Blocks hold whole entries, so
slots follow from the position and the block table alone, and a rejected row's entry is written
again when its position is refilled. A row that is fed again although its entries are cached writes
none. Everything here is index arithmetic, done once a step for all layers.

Shapes: T rows, L listed entries.
"""

from dataclasses import dataclass

import torch

from deepinfer_core.cache.layout import CacheLayout
from deepinfer_core.interfaces.attention import CacheCodec
from deepinfer_core.interfaces.step_slots import EntrySlots
from deepinfer_core.model.rope import Rotation
from deepinfer_core.model.step import StepInputs
from deepinfer_core.model.windows import ring_slots

__all__ = [
    "EntryStep",
    "PairStep",
    "entry_slots",
    "entry_step",
    "first_positions",
    "pair_step",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryStep:
    """The entries of one ratio in one step.

    Attributes:
        visible_T: entries that each row sees: 0 up to this, exclusive.
        most_visible: the largest of them, at least 1 so that scores have a width.
        slot_T: slot of the entry that the row completes, or -1; also -1 if the entry is cached.
        rotation: of the completed entry's first token.
        entries_per_block: rows of a page.
        block_table_QB: pages of each sequence.
        sequence_T: sequence of each row.
        rows_each: most rows of a sequence.
    """

    visible_T: torch.Tensor
    most_visible: int
    slot_T: torch.Tensor
    rotation: Rotation
    entries_per_block: int
    block_table_QB: torch.Tensor
    sequence_T: torch.Tensor
    rows_each: int

    def slots_of(self, entry_TL: torch.Tensor, codec: CacheCodec) -> torch.Tensor:
        """Slots of listed entries of each row's sequence; -1 stays -1."""
        slot_TL = torch.empty_like(entry_TL)
        codec.entry_slots(
            entry_TL, self.block_table_QB, self.sequence_T, self.entries_per_block, slot_TL
        )
        return slot_TL


@dataclass(frozen=True, slots=True, kw_only=True)
class PairStep:
    """Where the two tokens of a group meet; see ``CacheCodec.compress_pairs``.

    Attributes:
        slot_T: slot of the row's own gate and value; -1 if a later row takes its place.
        partner_slot_T: slot of the previous position.
        partner_row_T: row of this step at the previous position, or -1.
    """

    slot_T: torch.Tensor
    partner_slot_T: torch.Tensor
    partner_row_T: torch.Tensor


def first_positions(position_T: torch.Tensor, ratio: int) -> torch.Tensor:
    """Position of the first token of the entry that each position belongs to."""
    return position_T if ratio == 1 else position_T // ratio * ratio


def entry_step(
    step: StepInputs,
    layout: CacheLayout,
    ratio: int,
    by: Rotation,
    slots: EntrySlots | None = None,
) -> EntryStep:
    """Work out the entries of one ratio.

    Args:
        step: the rows.
        layout: fixes the slots.
        ratio: tokens of an entry.
        by: rotation of ``first_positions``.
        slots: where they are known already.
    """
    per_block = layout.block.block_tokens // ratio
    slots = slots or entry_slots(step, layout, ratio)
    ends = [start + count for start, count in zip(step.starts, step.row_counts, strict=True)]
    return EntryStep(
        visible_T=slots.visible_T,
        most_visible=max(max(ends) // ratio, 1),
        slot_T=slots.slot_T,
        rotation=by,
        entries_per_block=per_block,
        block_table_QB=step.block_table_QB,
        sequence_T=step.sequence_T,
        rows_each=max(step.row_counts),
    )


def entry_slots(step: StepInputs, layout: CacheLayout, ratio: int) -> EntrySlots:
    """Work out which entries of one ratio rows see and complete."""
    block_tokens = layout.block.block_tokens
    per_block = block_tokens // ratio
    position_T = step.position_T
    page_T = step.block_table_QB[step.sequence_T, position_T // block_tokens]
    completes_T = (position_T % ratio == ratio - 1) & (page_T >= 0)
    if any(step.cached_ends):
        completes_T &= position_T >= step.cached_end_Q[step.sequence_T]
    slot_T = page_T * per_block + position_T // ratio % per_block
    return EntrySlots(visible_T=(position_T + 1) // ratio, slot_T=slot_T.where(completes_T, -1))


def pair_step(step: StepInputs, layout: CacheLayout) -> PairStep:
    """Work out where raw gates and values are kept and found."""
    ring_tokens = layout.state.compressor_tokens
    position_T = step.position_T
    state_slot_T = step.state_slot_Q[step.sequence_T]
    slot_T = ring_slots(position_T, state_slot_T, ring_tokens)
    partner_row_T = torch.full_like(position_T, -1)
    if max(step.row_counts) > 1:
        row_T = torch.arange(position_T.shape[0], device=position_T.device)
        end_Q = step.start_Q + step.row_count_Q
        is_last_T = position_T >= (end_Q - ring_tokens)[step.sequence_T]
        is_first_T = position_T == step.start_Q[step.sequence_T]
        slot_T = slot_T.where(is_last_T, -1)
        partner_row_T = (row_T - 1).where(~is_first_T, -1)
    return PairStep(
        slot_T=slot_T,
        partner_slot_T=ring_slots(position_T - 1, state_slot_T, ring_tokens),
        partner_row_T=partner_row_T,
    )
