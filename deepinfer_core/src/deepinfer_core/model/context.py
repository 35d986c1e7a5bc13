"""What do all layers share while a step runs?

Shapes: T rows, L listed entries, S entries of the longest sequence, N lookback distances.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from deepinfer_core.cache.storage import Caches
from deepinfer_core.model.entries import EntryStep, PairStep, entry_step, pair_step
from deepinfer_core.model.rope import Rotation, rotation
from deepinfer_core.model.step import StepInputs
from deepinfer_core.model.windows import WindowStep, window_step

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
        window_tokens: keys that a row sees in its window.
        ratios: the ratios above 0 that layers have.
        probe: receives intermediate values.
        makes_entries: whether compressors run.
    """
    layout = caches.layout
    compressed = rotation(step.position_T, frequencies.compressed_P)
    return StepContext(
        inputs=step,
        caches=caches,
        windows=window_step(step, layout, window_tokens),
        plain=rotation(step.position_T, frequencies.plain_P),
        compressed=compressed,
        entries={
            ratio: entry_step(step, layout, ratio, frequencies.compressed_P, compressed)
            for ratio in ratios
        },
        pairs=pair_step(step, layout) if 2 in ratios else None,
        selection=Selection(),
        probe=probe,
        makes_entries=makes_entries,
    )
