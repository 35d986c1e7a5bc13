"""What do all layers share while a step runs?

Shapes: T rows, L listed entries, S entries of the longest sequence, N lookback distances.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from deepinfer_core.cache.layout import CacheLayout
from deepinfer_core.cache.storage import Caches
from deepinfer_core.interfaces.attention import CacheCodec
from deepinfer_core.interfaces.step_slots import SlotSizes, StepPlaces, StepSlots
from deepinfer_core.model.entries import (
    EntryStep,
    PairStep,
    entry_step,
    first_positions,
    pair_step,
)
from deepinfer_core.model.rope import Rotation, rotations
from deepinfer_core.model.step import StepInputs
from deepinfer_core.model.windows import (
    DecodeWindows,
    WindowStep,
    reads_rings_only,
    window_step,
)

__all__ = ["Frequencies", "Probe", "Selection", "StepContext", "step_context"]

Probe = Callable[[str, torch.Tensor], None]
"""Receives intermediate values by name, e.g. ``layers.3.attn.pre``; copy what is to be kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frequencies:
    """Rotary frequencies of the model, fp32 [P].

    Attributes:
        plain_P: of layers without entries and of the drafter.
        compressed_P: of all other layers.
    """

    plain_P: torch.Tensor
    compressed_P: torch.Tensor


@dataclass(slots=True, kw_only=True)
class Selection:
    """What index sources leave for the layers behind them; the one thing that changes in a step.

    Attributes:
        slot_TL: slots of the selected entries.
        pool_score_TS: scores that the candidate pool follows from; None if it holds everything.
    """

    slot_TL: torch.Tensor | None = None
    pool_score_TS: torch.Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """Everything about a step that does not depend on the layer.

    Attributes:
        inputs: the rows.
        caches: where keys go.
        windows: window keys of each row.
        plain: rotation of each row by the plain frequencies.
        compressed: rotation of each row by the compressed frequencies.
        entries: by ratio, the entries that rows complete and see.
        pairs: where the tokens of a pair meet; None without a layer of ratio 2.
        selection: filled in as layers run.
        probe: receives intermediate values.
        makes_entries: whether compressors run; not behind the point where rows were taken out, as
            all rows have made their entries before.
    """

    inputs: StepInputs
    caches: Caches
    windows: WindowStep
    plain: Rotation
    compressed: Rotation
    entries: Mapping[int, EntryStep]
    pairs: PairStep | None
    selection: Selection
    probe: Probe | None
    makes_entries: bool = True

    def report(self, name: str, value: torch.Tensor) -> None:
        """Show an intermediate value to whoever asked for it."""
        if self.probe is not None:
            self.probe(name, value)


def step_context(
    step: StepInputs,
    caches: Caches,
    frequencies: Frequencies,
    *,
    codec: CacheCodec,
    window_tokens: int,
    ratios: frozenset[int],
    probe: Probe | None,
    makes_entries: bool = True,
) -> StepContext:
    """Work out a step's lists and rotations.

    Args:
        step: the rows.
        caches: their layout fixes the slots.
        frequencies: rotary frequencies.
        codec: may know all slots of a decode step.
        window_tokens: keys that a row sees in its window.
        ratios: the ratios above 0 that layers have.
        probe: receives intermediate values.
        makes_entries: whether compressors run.
    """
    layout = caches.layout
    by, plain = _rotations(step.position_T, frequencies, ratios)
    slots = None
    if reads_rings_only(step, layout):
        slots = codec.step_slots(_places(step), _sizes(layout, window_tokens, ratios))
    return StepContext(
        inputs=step,
        caches=caches,
        windows=_windows(slots) if slots else window_step(step, layout, window_tokens),
        plain=plain,
        compressed=by[1],
        entries={
            ratio: entry_step(
                step, layout, ratio, by[ratio], slots.entries[ratio] if slots else None
            )
            for ratio in ratios
        },
        pairs=(_pairs(slots) if slots else pair_step(step, layout)) if 2 in ratios else None,
        selection=Selection(),
        probe=probe,
        makes_entries=makes_entries,
    )


def _rotations(
    position_T: torch.Tensor, frequencies: Frequencies, ratios: frozenset[int]
) -> tuple[dict[int, Rotation], Rotation]:
    """Rotations by the compressed frequencies, by ratio, and that by the plain ones, at once.

    That of ratio 1 is the rows' own; entries of more tokens turn as their first one.
    """
    wanted = [1, *sorted(ratios - {1})]
    positions = [position_T, *[first_positions(position_T, ratio) for ratio in wanted]]
    frequency_FP = [frequencies.plain_P, *[frequencies.compressed_P for _ in wanted]]
    plain, *others = rotations(torch.stack(positions), torch.stack(frequency_FP))
    return dict(zip(wanted, others, strict=True)), plain


def _sizes(layout: CacheLayout, window_tokens: int, ratios: frozenset[int]) -> SlotSizes:
    return SlotSizes(
        window=window_tokens,
        ring_tokens=layout.state.ring_tokens,
        pair_tokens=max(layout.state.compressor_tokens, 1),
        block_tokens=layout.block.block_tokens,
        ratios=tuple(sorted(ratios)),
    )


def _places(step: StepInputs) -> StepPlaces:
    return StepPlaces(
        position_T=step.position_T,
        sequence_T=step.sequence_T,
        state_slot_Q=step.state_slot_Q,
        start_Q=step.start_Q,
        row_count_Q=step.row_count_Q,
        valid_start_Q=step.valid_start_Q,
        cached_end_Q=step.cached_end_Q,
        block_table_QB=step.block_table_QB,
    )


def _windows(slots: StepSlots) -> WindowStep:
    decode = DecodeWindows(row_S=None, slot_SW=slots.window_TW)
    return WindowStep(write_slot_T=slots.write_T, decode=decode, chunks=None)


def _pairs(slots: StepSlots) -> PairStep:
    return PairStep(
        slot_T=slots.pair_T,
        partner_slot_T=slots.partner_T,
        partner_row_T=slots.partner_row_T,
    )
