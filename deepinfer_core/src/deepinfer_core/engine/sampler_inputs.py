"""How does what sampled rows ask for become tensors?

Shapes: R rows, V vocabulary, W = ceil(V / 32) mask words, B biases and N earlier tokens of the row
that has the most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from deepinfer_core.engine.parcel import Parcel
from deepinfer_core.engine.rows import RowRequest, RowSettings
from deepinfer_core.interfaces.device import Device
from deepinfer_core.interfaces.sampler import LogitsRules, SamplerRows

__all__ = ["PackedRows", "SamplerInputs"]

_PADDING = -1


class PackedRows:
    """The settings of the rows of one step, on the host.

    Args:
        rows: at least one.
        settings: what does not change from token to token.
        device: where they go.
    """

    def __init__(
        self, rows: tuple[RowRequest, ...], settings: _PackedSettings, device: Device
    ) -> None:
        self._settings = settings
        places = [[row.row for row in rows], [row.position for row in rows]]
        if any(row.forced is not None for row in rows):
            places.append([-1 if row.forced is None else row.forced for row in rows])
        masks = _masks(rows, settings.allowed_RW)
        self._is_masked = masks is not None
        arrays = [np.array(places, dtype=np.int64), *_rules(rows)]
        self._parcel = Parcel(arrays if masks is None else [*arrays, masks], device)

    def arrive(self) -> tuple[torch.Tensor, SamplerRows]:
        """Step rows that are sampled, and their settings; called by work on a stream, once.

        The tensors are read only.
        """
        places, *rules = self._parcel.arrive()
        row_R, position_R, *forced = places.unbind()
        mask_RW = rules.pop() if self._is_masked else None
        kept = self._settings.arrive()
        settings = replace(
            kept,
            position_R=position_R,
            forced_R=forced[0] if forced else kept.forced_R,
            allowed_RW=kept.allowed_RW if mask_RW is None else mask_RW,
            rules=LogitsRules(**dict(zip(_RULES, rules, strict=True))) if rules else None,
        )
        return row_R, settings


class SamplerInputs:
    """Packs settings; those of the last step stay on the device for the same requests.

    While the same requests decode, a step brings positions only.

    Args:
        vocabulary: V.
        device: where the tensors go.
    """

    def __init__(self, vocabulary: int, device: Device) -> None:
        self._vocabulary = vocabulary
        self._device = device
        self._settings: list[RowSettings] = []
        self._banned: list[tuple[int, ...]] = []
        self._kept: _PackedSettings | None = None

    def rows(self, rows: tuple[RowRequest, ...]) -> PackedRows:
        """Settings of all rows, at least one."""
        settings, banned = [row.settings for row in rows], [row.banned for row in rows]
        if self._kept is None or settings != self._settings or banned != self._banned:
            self._kept = _PackedSettings(rows, self._vocabulary, self._device)
            self._settings, self._banned = settings, banned
        return PackedRows(rows, self._kept, self._device)


class _PackedSettings:
    """What does not change from token to token, with nothing forced; brought over once."""

    def __init__(self, rows: tuple[RowRequest, ...], vocabulary: int, device: Device) -> None:
        settings = [row.settings for row in rows]
        floats = [
            [one.temperature for one in settings],
            [one.top_p for one in settings],
            [one.min_p for one in settings],
        ]
        whole = [
            [one.top_k for one in settings],
            [_signed(one.seed) for one in settings],
            [_PADDING] * len(rows),
        ]
        self.allowed_RW = allowed_RW = _allowed(rows, vocabulary)
        arrays: list[np.ndarray] = [np.array(floats, np.float32), np.array(whole, np.int64)]
        if allowed_RW is not None:
            arrays.append(allowed_RW)
        self._parcel = Parcel(arrays, device)
        self._arrived: SamplerRows | None = None

    def arrive(self) -> SamplerRows:
        """The settings on the device. Steps follow one another on one stream, so nobody races."""
        if self._arrived is None:
            floats, whole, *allowed = self._parcel.arrive()
            temperature_R, top_p_R, min_p_R = floats.unbind()
            top_k_R, seed_R, none_R = whole.unbind()
            self._arrived = SamplerRows(
                temperature_R=temperature_R,
                top_p_R=top_p_R,
                top_k_R=top_k_R,
                min_p_R=min_p_R,
                seed_R=seed_R,
                position_R=none_R,
                forced_R=none_R,
                allowed_RW=allowed[0] if allowed else None,
            )
        return self._arrived


def _signed(seed: int) -> int:
    """The bits of an unsigned 64-bit number in a signed one."""
    return seed - (1 << 64) * (seed >> 63)


def _allowed(rows: tuple[RowRequest, ...], vocabulary: int) -> np.ndarray | None:
    if all(row.settings.allowed is None and not row.banned for row in rows):
        return None
    words = -(-vocabulary // 32)
    allowed_RV = np.ones((len(rows), 32 * words), dtype=np.bool_)
    for number, row in enumerate(rows):
        if row.settings.allowed is not None:
            allowed_RV[number] = False
            allowed_RV[number, list(row.settings.allowed)] = True
        allowed_RV[number, list(row.banned)] = False
    allowed_RW = np.packbits(allowed_RV, axis=1, bitorder="little").view("<i4")
    return allowed_RW.astype(np.int32, copy=False)


def _masks(rows: tuple[RowRequest, ...], allowed_RW: np.ndarray | None) -> np.ndarray | None:
    """What each row may draw by its mask and its settings; None: no row has a mask."""
    words = next((row.mask.shape[0] for row in rows if row.mask is not None), None)
    if words is None:
        return None
    mask_RW = np.full((len(rows), words), -1, dtype=np.int32)
    for number, row in enumerate(rows):
        if row.mask is not None:
            mask_RW[number] = row.mask
    return mask_RW if allowed_RW is None else mask_RW & allowed_RW


_RULES = (
    "bias_token_RB",
    "bias_RB",
    "seen_token_RN",
    "output_count_RN",
    "repetition_R",
    "frequency_R",
    "presence_R",
)


def _rules(rows: tuple[RowRequest, ...]) -> list[np.ndarray]:
    """The fields of ``LogitsRules`` in the order of ``_RULES``; empty: nothing is changed."""
    if not any(row.seen or row.settings.bias for row in rows):
        return []
    biases, seen = [row.settings.bias for row in rows], [row.seen for row in rows]
    penalties = [
        np.array([getattr(row.settings, f"{name}_penalty") for row in rows], dtype=np.float32)
        for name in ("repetition", "frequency", "presence")
    ]
    return [
        _column(biases, 0, np.int64),
        _column(biases, 1, np.float32),
        _column(seen, 0, np.int64),
        _column(seen, 1, np.int64),
        *penalties,
    ]


def _column(
    lists: Sequence[Sequence[tuple[int, float]]], place: int, dtype: type[np.generic]
) -> np.ndarray:
    """One number of the pairs of each row, padded to the longest row."""
    table = np.full((len(lists), max(map(len, lists))), _PADDING, dtype=dtype)
    for number, pairs in enumerate(lists):
        table[number, : len(pairs)] = [pair[place] for pair in pairs]
    return table
