"""Which tensors does a plain decode step bring, and what is the same step with other ones?

Shapes: see ``context``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from deepinfer_core.model.context import Selection, StepContext
from deepinfer_core.model.entries import EntryStep, PairStep
from deepinfer_core.model.rope import Rotation
from deepinfer_core.model.windows import DecodeWindows

__all__ = ["is_plain_decode", "step_tensors", "with_tensors"]


def is_plain_decode(step: StepContext) -> bool:
    """Whether all rows are tokens that read the rings, no row goes away, and nobody looks."""
    windows = step.windows
    return (
        windows.chunks is None
        and windows.decode is not None
        and windows.decode.row_S is None
        and step.inputs.embedding_TD is None
        and step.inputs.truncation is None
        and step.probe is None
    )


def step_tensors(step: StepContext) -> list[torch.Tensor]:
    """All tensors of a plain decode step that its forward pass reads behind the context."""
    inputs, decode = step.inputs, step.windows.decode
    assert decode is not None
    found = [
        *(inputs.token_T, inputs.previous_T3, inputs.image_T, inputs.image_previous_T3),
        *(step.windows.write_slot_T, decode.slot_SW),
        *(step.plain.cosine_TP, step.plain.sine_TP),
        *(step.compressed.cosine_TP, step.compressed.sine_TP),
    ]
    for entry in step.entries.values():
        found += (entry.visible_T, entry.slot_T, entry.block_table_QB, entry.sequence_T)
        found += (entry.rotation.cosine_TP, entry.rotation.sine_TP)
    if step.pairs is not None:
        found += (step.pairs.slot_T, step.pairs.partner_slot_T, step.pairs.partner_row_T)
    return found


def with_tensors(
    step: StepContext, tensors: Sequence[torch.Tensor], most_visible: Mapping[int, int]
) -> StepContext:
    """The same plain decode step with other tensors, and room for more scores.

    Args:
        step: the step.
        tensors: in the order of ``step_tensors``, of the same shapes.
        most_visible: by ratio, at least what it is.
    """
    given = iter(tensors)
    inputs = replace(
        step.inputs,
        token_T=next(given),
        previous_T3=next(given),
        image_T=next(given),
        image_previous_T3=next(given),
    )
    windows = replace(
        step.windows,
        write_slot_T=next(given),
        decode=DecodeWindows(row_S=None, slot_SW=next(given)),
    )
    return replace(
        step,
        inputs=inputs,
        windows=windows,
        plain=_rotation(given),
        compressed=_rotation(given),
        entries={
            ratio: _entries(entry, given, most_visible[ratio])
            for ratio, entry in step.entries.items()
        },
        pairs=None if step.pairs is None else _pairs(given),
        selection=Selection(),
    )


def _rotation(given: Iterator[torch.Tensor]) -> Rotation:
    return Rotation(cosine_TP=next(given), sine_TP=next(given))


def _entries(entry: EntryStep, given: Iterator[torch.Tensor], most_visible: int) -> EntryStep:
    return replace(
        entry,
        visible_T=next(given),
        slot_T=next(given),
        block_table_QB=next(given),
        sequence_T=next(given),
        rotation=_rotation(given),
        most_visible=most_visible,
    )


def _pairs(given: Iterator[torch.Tensor]) -> PairStep:
    return PairStep(slot_T=next(given), partner_slot_T=next(given), partner_row_T=next(given))
