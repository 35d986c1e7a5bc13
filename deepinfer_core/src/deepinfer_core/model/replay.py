"""Which rows enter the decoder half, and can this step be replayed at all?

The decoder half sees a step of its own: the same rows with later first valid positions (mode
``mask``), or only the last rows of each sequence (mode ``compact``). Since windows, entries and
slots follow from positions alone, nothing behind that point knows about truncation.

Shapes: T rows of the step, S rows that enter the decoder half, R wanted rows.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import accumulate

import torch

from deepinfer_core.cache.layout import CacheLayout
from deepinfer_core.cache.replay import removed_rows
from deepinfer_core.errors import NotSupported
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.model.staging import staged
from deepinfer_core.model.step import StepInputs

__all__ = ["DecoderRows", "check_halves", "check_replay", "decoder_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderRows:
    """What the decoder half runs on.

    Attributes:
        inputs: its step.
        row_S: which rows of the whole step these are; None for all of them.
    """

    inputs: StepInputs
    row_S: torch.Tensor | None


def decoder_rows(step: StepInputs) -> DecoderRows:
    """Work out what the decoder half runs on in a step that has a truncation.

    Waits for the device if rows are taken out and the host was not told which ones are wanted.

    Raises:
        NotSupported: logits of a row are wanted that is taken out.
    """
    valid_starts = tuple(map(max, step.valid_starts, step.keep_from))
    valid_start_Q = step.valid_start_Q.maximum(step.keep_from_Q)
    masked = replace(
        step, valid_starts=valid_starts, placed_5Q=_placed(step, valid_start_Q=valid_start_Q)
    )
    if step.truncation is None or step.truncation.mode == "mask":
        return DecoderRows(inputs=masked, row_S=None)
    removed = tuple(map(removed_rows, step.starts, step.row_counts, step.keep_from))
    if not any(removed):
        return DecoderRows(inputs=masked, row_S=None)
    return _compacted(masked, removed)


def _compacted(step: StepInputs, removed: tuple[int, ...]) -> DecoderRows:
    ends = list(accumulate(step.row_counts))
    counts = tuple(n - gone for n, gone in zip(step.row_counts, removed, strict=True))
    rows = [row for end, n in zip(ends, counts, strict=True) for row in range(end - n, end)]
    wanted, device = _wanted(step, rows), step.position_T.device
    row_S = staged(rows, device)
    removed_Q = (step.keep_from_Q - step.start_Q).clamp_min(0).minimum(step.row_count_Q - 1)
    inputs = replace(
        step,
        token_T=step.token_T[row_S],
        position_T=step.position_T[row_S],
        sequence_T=step.sequence_T[row_S],
        previous_T3=step.previous_T3[row_S],
        image_T=step.image_T[row_S],
        image_previous_T3=step.image_previous_T3[row_S],
        embedding_TD=None if step.embedding_TD is None else step.embedding_TD[row_S],
        starts=tuple(start + gone for start, gone in zip(step.starts, removed, strict=True)),
        row_counts=counts,
        sample_row_R=staged(wanted, device),
        sample_rows=wanted,
        placed_5Q=_placed(
            step, start_Q=step.start_Q + removed_Q, row_count_Q=step.row_count_Q - removed_Q
        ),
    )
    return DecoderRows(inputs=inputs, row_S=row_S)


def _placed(step: StepInputs, **changed_Q: torch.Tensor) -> torch.Tensor:
    """The numbers of each sequence on the device, some of them changed."""
    names = ("start_Q", "row_count_Q", "valid_start_Q", "cached_end_Q", "keep_from_Q")
    return torch.stack([changed_Q.get(name, getattr(step, name)) for name in names])


def _wanted(step: StepInputs, rows: list[int]) -> tuple[int, ...]:
    """Places of the wanted rows among those that are kept."""
    place_of = {row: place for place, row in enumerate(rows)}
    wanted = step.sample_rows
    if wanted is None:
        wanted = tuple(step.sample_row_R.tolist())
    lost = [row for row in wanted if row not in place_of]
    if lost:
        raise NotSupported(
            f"asked for the logits of row {lost[0]}, found that it is taken out of the decoder "
            "half",
            hint="ask for rows that are kept, or turn truncation off to score a prompt",
        )
    return tuple(place_of[row] for row in wanted)


def check_replay(step: StepInputs, config: ModelConfig, layout: CacheLayout) -> None:
    """Refuse a replay or truncation that would give wrong keys.

    Args:
        step: the rows.
        config: fixes the window and which layers are whose.
        layout: fixes how many rows may be taken back.

    Raises:
        ConfigError: fewer tokens are kept than a window and backtracking need.
        NotSupported: the model's layers or the step's positions do not allow it.
    """
    if step.truncation is not None:
        step.truncation.check(
            window_tokens=config.text_config.sliding_window,
            max_backtracking=layout.max_backtracking,
        )
        check_halves(config)
    elif any(step.keep_from):
        raise NotSupported(
            f"asked to keep positions from {max(step.keep_from)} on, found no truncation",
            hint="name the truncation, or keep everything",
        )
    group = max(layer.ratio for layer in config.layers)
    for start, valid, cached in zip(step.starts, step.valid_starts, step.cached_ends, strict=True):
        _check_positions(start, valid, cached, group)


def check_halves(config: ModelConfig) -> None:
    """Refuse to truncate the decoder half of a model that feeds more than window keys into it.

    Raises:
        NotSupported: an Engram lies in the decoder half, or the drafter listens to both halves.
    """
    boundary = config.boundary_layer
    late = [layer for layer in config.text_config.engram_layer_ids if layer >= boundary]
    if late:
        raise NotSupported(
            f"asked to truncate the decoder half, found an Engram in its layer {late[0]}",
            hint="turn truncation off for this checkpoint",
        )
    targets = config.text_config.dspark_target_layer_ids
    if _is_split(targets, boundary):
        raise NotSupported(
            f"asked to truncate the decoder half, found a drafter that listens to layers "
            f"{list(targets)}, on both sides of layer {boundary}",
            hint="turn truncation off for this checkpoint",
        )


def _is_split(layers: Collection[int], boundary: int) -> bool:
    return any(layer < boundary for layer in layers) and any(layer >= boundary for layer in layers)


def _check_positions(start: int, valid: int, cached: int, group: int) -> None:
    if valid > start:
        raise NotSupported(
            f"asked to feed rows from position {start} on, found that window keys are valid only "
            f"from {valid} on",
            hint="start at the first valid position or behind it",
        )
    if valid > cached:
        raise NotSupported(
            f"asked to replay from position {valid} on, found cached entries only up to {cached}",
            hint="replay only what is cached, and say so in every step of the prompt",
        )
    if cached % group:
        raise NotSupported(
            f"asked to replay up to position {cached}, found entries of {group} tokens",
            hint="reuse whole blocks of a prefix",
        )
