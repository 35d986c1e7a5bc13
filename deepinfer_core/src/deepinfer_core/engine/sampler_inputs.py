"""How does what sampled rows ask for become tensors?

Shapes: R rows, V vocabulary, W = ceil(V / 32) mask words, B biases and N earlier tokens of the row
that has the most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from deepinfer_core.engine.rows import RowRequest, RowSettings
from deepinfer_core.interfaces.sampler import LogitsRules, SamplerRows

__all__ = ["SamplerInputs"]

_PADDING = -1


class SamplerInputs:
    """Brings settings to the device; those of the last step stay there for the same requests.

    While the same requests decode, a step brings positions only.

    Args:
        vocabulary: V.
        device: where the tensors go.
    """

    def __init__(self, vocabulary: int, device: torch.device) -> None:
        self._vocabulary = vocabulary
        self._device = device
        self._settings: list[RowSettings] = []
        self._banned: list[tuple[int, ...]] = []
        self._kept: SamplerRows | None = None

    def rows(self, rows: tuple[RowRequest, ...]) -> SamplerRows:
        """Settings of all rows, at least one. The tensors are read only."""
        settings, banned = [row.settings for row in rows], [row.banned for row in rows]
        if self._kept is None or settings != self._settings or banned != self._banned:
            self._kept = self._fixed(rows, settings)
            self._settings, self._banned = settings, banned
        forced_R = self._kept.forced_R
        if any(row.forced is not None for row in rows):
            forced_R = self._integers([-1 if row.forced is None else row.forced for row in rows])
        return replace(
            self._kept,
            position_R=self._integers([row.position for row in rows]),
            forced_R=forced_R,
            rules=_rules(rows, self._device),
        )

    def _fixed(self, rows: tuple[RowRequest, ...], settings: list[RowSettings]) -> SamplerRows:
        """What does not change from token to token, with nothing forced."""
        unforced_R = self._integers([-1] * len(rows))
        return SamplerRows(
            temperature_R=_floats([one.temperature for one in settings], self._device),
            top_p_R=_floats([one.top_p for one in settings], self._device),
            top_k_R=self._integers([one.top_k for one in settings]),
            min_p_R=_floats([one.min_p for one in settings], self._device),
            seed_R=self._integers([_signed(one.seed) for one in settings]),
            position_R=unforced_R,
            forced_R=unforced_R,
            allowed_RW=_allowed(rows, self._vocabulary, self._device),
        )

    def _integers(self, values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._device)


def _signed(seed: int) -> int:
    """The bits of an unsigned 64-bit number in a signed one."""
    return seed - (1 << 64) * (seed >> 63)


def _allowed(
    rows: tuple[RowRequest, ...], vocabulary: int, device: torch.device
) -> torch.Tensor | None:
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
    return torch.from_numpy(allowed_RW.astype(np.int32, copy=False)).to(device)


def _rules(rows: tuple[RowRequest, ...], device: torch.device) -> LogitsRules | None:
    if not any(row.seen or row.settings.bias for row in rows):
        return None
    biases, seen = [row.settings.bias for row in rows], [row.seen for row in rows]
    return LogitsRules(
        bias_token_RB=_column(biases, 0, np.int64, device),
        bias_RB=_column(biases, 1, np.float32, device),
        seen_token_RN=_column(seen, 0, np.int64, device),
        output_count_RN=_column(seen, 1, np.int64, device),
        repetition_R=_floats([row.settings.repetition_penalty for row in rows], device),
        frequency_R=_floats([row.settings.frequency_penalty for row in rows], device),
        presence_R=_floats([row.settings.presence_penalty for row in rows], device),
    )


def _floats(values: list[float], device: torch.device) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32, device=device)


def _column(
    lists: Sequence[Sequence[tuple[int, float]]],
    place: int,
    dtype: type[np.generic],
    device: torch.device,
) -> torch.Tensor:
    """One number of the pairs of each row, padded to the longest row."""
    table = np.full((len(lists), max(map(len, lists))), _PADDING, dtype=dtype)
    for number, pairs in enumerate(lists):
        table[number, : len(pairs)] = [pair[place] for pair in pairs]
    return torch.from_numpy(table).to(device)
