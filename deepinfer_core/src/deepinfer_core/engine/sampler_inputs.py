"""How does what sampled rows ask for become tensors?

Shapes: R rows, V vocabulary, W = ceil(V / 32) mask words, B biases and N earlier tokens of the row
that has the most.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from deepinfer_core.engine.rows import RowRequest
from deepinfer_core.interfaces.sampler import LogitsRules, SamplerRows

__all__ = ["sampler_rows"]

_PADDING = -1


def sampler_rows(
    rows: tuple[RowRequest, ...], vocabulary: int, device: torch.device
) -> SamplerRows:
    """Settings of all rows.

    Args:
        rows: at least one.
        vocabulary: V.
        device: where the tensors go.
    """

    def integers(values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    return SamplerRows(
        temperature_R=_floats([row.settings.temperature for row in rows], device),
        top_p_R=_floats([row.settings.top_p for row in rows], device),
        top_k_R=integers([row.settings.top_k for row in rows]),
        min_p_R=_floats([row.settings.min_p for row in rows], device),
        seed_R=integers([_signed(row.settings.seed) for row in rows]),
        position_R=integers([row.position for row in rows]),
        forced_R=integers([-1 if row.forced is None else row.forced for row in rows]),
        allowed_RW=_allowed(rows, vocabulary, device),
        rules=_rules(rows, device),
    )


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
    if not any(row.settings.bias or row.seen for row in rows):
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
