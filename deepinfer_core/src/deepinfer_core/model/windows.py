"""Which window keys does each row of a step see, and where are they read and written?

A row at position p sees the keys of the positions from ``p - window + 1`` up to p that exist.
Sequences that feed a few rows (decoding, verification) write their ring first and read all keys
from it. That is not possible for longer chunks, whose rows would overwrite each other's windows:
these read a *workspace* instead, made of the keys that precede the chunk and of the chunk's own
keys after a round trip through the cache format, and only their last rows enter the ring. Both ways
list the same keys at the same places of the list, so a row's bits do not depend on the way.

A row in front of a sequence's first valid position sees no window key and leaves none.

Everything here is index arithmetic, done once a step for all layers. Where the host knows that a
mask would be true everywhere, as in most decode steps, it is left out.

Shapes: T rows of the step, S rows of one kind, Q sequences, W window, H history rows.
"""

import operator
from dataclasses import dataclass

import torch

from deepinfer_core.cache.layout import CacheLayout
from deepinfer_core.model.staging import staged
from deepinfer_core.model.step import StepInputs

__all__ = [
    "ChunkWindows",
    "DecodeWindows",
    "WindowStep",
    "reads_rings_only",
    "ring_slots",
    "window_step",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeWindows:
    """Rows that read their keys from the rings.

    Attributes:
        row_S: which rows of the step, or None for all.
        slot_SW: ring slots of the keys, -1 for none.
    """

    row_S: torch.Tensor | None
    slot_SW: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkWindows:
    """Rows that read their keys from a workspace: all histories, then all rows of this kind.

    Attributes:
        row_S: which rows of the step, or None for all.
        slot_SW: workspace rows of the keys, -1 for none.
        history_slot_H: ring slots of the keys before each chunk, -1 for none.
    """

    row_S: torch.Tensor | None
    slot_SW: torch.Tensor
    history_slot_H: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowStep:
    """The windows of one step.

    Attributes:
        write_slot_T: ring slot that each row's key goes to; -1 if a later row takes its place, or
            if the row is in front of the first valid position.
        decode: rows of the first kind, if any.
        chunks: rows of the second kind, if any.
    """

    write_slot_T: torch.Tensor
    decode: DecodeWindows | None
    chunks: ChunkWindows | None


def ring_slots(position: torch.Tensor, state_slot: torch.Tensor, ring_tokens: int) -> torch.Tensor:
    """Slots of positions in the rings of their sequences."""
    return state_slot * ring_tokens + position % ring_tokens


def window_step(step: StepInputs, layout: CacheLayout, window_tokens: int) -> WindowStep:
    """Work out the windows of a step.

    Args:
        step: the rows.
        layout: tells ring length and most rows that may be read back from the ring.
        window_tokens: keys that a row sees, itself included.
    """
    ring_tokens = layout.state.ring_tokens
    counts = step.row_counts
    is_chunk = [count > layout.max_backtracking for count in counts]
    listing = _Listing(step, window_tokens, layout)
    decode_rows = _rows_of(counts, [not chunk for chunk in is_chunk])
    chunk_rows = _rows_of(counts, is_chunk)
    return WindowStep(
        write_slot_T=_write_slots(step, ring_tokens),
        decode=listing.decode(decode_rows) if decode_rows else None,
        chunks=listing.chunks(chunk_rows, is_chunk) if chunk_rows else None,
    )


def reads_rings_only(step: StepInputs, layout: CacheLayout) -> bool:
    """Whether every row of a step reads its window from its ring."""
    return max(step.row_counts) <= layout.max_backtracking


def _write_slots(step: StepInputs, ring_tokens: int) -> torch.Tensor:
    position_T, sequence_T = step.position_T, step.sequence_T
    slot_T = ring_slots(position_T, step.state_slot_Q[sequence_T], ring_tokens)
    if max(step.row_counts) > ring_tokens:
        end_Q = step.start_Q + step.row_count_Q
        slot_T = slot_T.where(position_T >= (end_Q - ring_tokens)[sequence_T], -1)
    if any(map(operator.lt, step.starts, step.valid_starts)):
        slot_T = slot_T.where(position_T >= step.valid_start_Q[sequence_T], -1)
    return slot_T


class _Listing:
    """The lists of both kinds of rows of one step."""

    def __init__(self, step: StepInputs, window_tokens: int, layout: CacheLayout) -> None:
        self._step = step
        self._window = window_tokens
        self._ring_tokens = layout.state.ring_tokens
        self._slack = layout.max_backtracking - 1
        self._device = step.position_T.device
        self._first_Q = step.valid_start_Q

    def decode(self, rows: list[int]) -> DecodeWindows:
        row_S, position_SW, sequence_S = self._keys_of(rows)
        state_slot_S = self._step.state_slot_Q[sequence_S]
        slot_SW = ring_slots(position_SW, state_slot_S[:, None], self._ring_tokens)
        if self._may_lack_keys():
            exists_SW = position_SW >= self._first_Q[sequence_S][:, None]
            slot_SW = slot_SW.where(exists_SW, -1)
        return DecodeWindows(row_S=row_S, slot_SW=slot_SW)

    def _may_lack_keys(self) -> bool:
        """Whether a row may see fewer keys than a window; it may begin before its start."""
        sure = self._window - 1 + self._slack
        pairs = zip(self._step.starts, self._step.valid_starts, strict=True)
        return any(start - first < sure for start, first in pairs)

    def chunks(self, rows: list[int], is_chunk: list[bool]) -> ChunkWindows:
        history = self._window - 1
        sequences = [number for number, chunk in enumerate(is_chunk) if chunk]
        # Workspace row of a position = position + shift, one shift for the history, one for the
        # chunk's own rows.
        shifts = [[0, 0] for _ in is_chunk]
        history_end, row_end = 0, len(sequences) * history
        for number in sequences:
            start = self._step.starts[number]
            shifts[number] = [history_end - (start - history), row_end - start]
            history_end += history
            row_end += self._step.row_counts[number]
        shift_Q2 = staged(shifts, self._device)
        start_Q = self._step.start_Q
        row_S, position_SW, sequence_S = self._keys_of(rows)
        is_history_SW = position_SW < start_Q[sequence_S][:, None]
        shift_S2 = shift_Q2[sequence_S]
        slot_SW = position_SW + torch.where(is_history_SW, shift_S2[:, :1], shift_S2[:, 1:])
        exists_SW = position_SW >= self._first_Q[sequence_S][:, None]
        return ChunkWindows(
            row_S=row_S,
            slot_SW=slot_SW.where(exists_SW, -1),
            history_slot_H=self._history_slots(sequences, start_Q),
        )

    def _history_slots(self, sequences: list[int], start_Q: torch.Tensor) -> torch.Tensor:
        number_C = staged(sequences, self._device)
        back_H = torch.arange(1 - self._window, 0, device=self._device)
        position_CH = start_Q[number_C][:, None] + back_H
        state_slot_C = self._step.state_slot_Q[number_C]
        slot_CH = ring_slots(position_CH, state_slot_C[:, None], self._ring_tokens)
        exists_CH = position_CH >= self._first_Q[number_C][:, None]
        return slot_CH.where(exists_CH, -1).flatten()

    def _keys_of(self, rows: list[int]) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor]:
        position_S, sequence_S = self._step.position_T, self._step.sequence_T
        row_S = None
        if len(rows) < position_S.shape[0]:
            row_S = staged(rows, self._device)
            position_S, sequence_S = position_S[row_S], sequence_S[row_S]
        back_W = torch.arange(1 - self._window, 1, device=self._device)
        return row_S, position_S[:, None] + back_W, sequence_S


def _rows_of(counts: tuple[int, ...], wanted: list[bool]) -> list[int]:
    rows: list[int] = []
    start = 0
    for count, want in zip(counts, wanted, strict=True):
        if want:
            rows.extend(range(start, start + count))
        start += count
    return rows
