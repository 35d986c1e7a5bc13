"""How do documents become token rows on the device?

A document starts at a multiple of 8 and never continues in another row.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

__all__ = [
    "ALIGNMENT",
    "LONG_TOKENS",
    "SHORT_TOKENS",
    "Valid",
    "filled_rows",
    "load_plan",
    "load_valid",
    "pack",
]

ALIGNMENT = 8  # ratio-2 groups and candidate blocks start anew with a document
SHORT_TOKENS, LONG_TOKENS = 2048, 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Valid:
    """Held-out documents as rows."""

    rows_RT: torch.Tensor  # int64 token ids
    document_RT: torch.Tensor  # int64, index of the document of each token, -1 for padding
    source_D: np.ndarray  # source number of each document
    bytes_D: np.ndarray
    names: list[str]


def pack(lengths: list[int], order: list[int], row_tokens: int) -> np.ndarray:
    """Fill rows from ``order``, the largest fitting of the next 64 documents first.

    Args:
        lengths: aligned length of each document.
        order: document ids, with repeats.
        row_tokens: tokens of a row.

    Returns:
        Document ids int32 [rows, most documents], filled with -1.
    """
    rows: list[list[int]] = []
    waiting: list[int] = []
    current: list[int] = []
    used, following = 0, iter(order)
    while True:
        while len(waiting) < 64 and (item := next(following, None)) is not None:
            waiting.append(item)
        fitting = [i for i in waiting if lengths[i] <= row_tokens - used]
        if waiting and fitting:
            # The oldest first while there is room; the best fit for the rest of the row.
            room = row_tokens - used
            pick = fitting[0] if room > 512 else max(fitting, key=lambda i: lengths[i])
            waiting.remove(pick)
            current.append(pick)
            used += lengths[pick]
            continue
        if current:
            rows.append(current)
        if not waiting:
            break
        if not current:
            raise ValueError(f"document {waiting[0]} is longer than a row of {row_tokens} tokens")
        current, used = [], 0
    wide = np.full((len(rows), max(map(len, rows))), -1, dtype=np.int32)
    for i, row in enumerate(rows):
        wide[i, : len(row)] = row
    return wide


def filled_rows(
    tokens: np.ndarray, lengths: np.ndarray, plan: np.ndarray, row_tokens: int, pad: int
) -> tuple[np.ndarray, np.ndarray]:
    """Token ids and document numbers of each row.

    Args:
        tokens: all documents one after another.
        lengths: of each document.
        plan: document numbers of each row, -1 filled.
        row_tokens: tokens of a row.
        pad: id for unused places.

    Returns:
        uint16 [rows, row_tokens] and int32 of the same shape, -1 at padding.
    """
    offset = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    rows = np.full((len(plan), row_tokens), pad, dtype=np.uint16)
    owner = np.full(rows.shape, -1, dtype=np.int32)
    for row, mine, ids in zip(rows, owner, plan, strict=True):
        at = 0
        for i in ids[ids >= 0]:
            n = lengths[i]
            row[at : at + n] = tokens[offset[i] : offset[i] + n]
            mine[at : at + n] = i
            at += -(-n // ALIGNMENT) * ALIGNMENT
    return rows, owner


def load_plan(folder: Path, which: str, pad: int, device: str) -> torch.Tensor:
    """All rows of the plan ``short`` or ``long`` as int16 on the device (ids are below 2^15)."""
    tokens = np.load(folder / "tokens.npy")
    lengths = np.load(folder / "documents.npz")["length"]
    width = SHORT_TOKENS if which == "short" else LONG_TOKENS
    rows, _ = filled_rows(tokens, lengths, np.load(folder / f"{which}.npy"), width, pad)
    return torch.from_numpy(rows.astype(np.int16)).to(device)


def load_valid(folder: Path, pad: int, batch_rows: int, device: str) -> Valid:
    """Held-out rows, padded to a multiple of ``batch_rows`` rows."""
    data = np.load(folder / "valid.npz")
    plan = data["rows"]
    extra = -len(plan) % batch_rows
    plan = np.concatenate((plan, np.full((extra, plan.shape[1]), -1, dtype=plan.dtype)))
    rows, owner = filled_rows(data["tokens"], data["length"], plan, SHORT_TOKENS, pad)
    return Valid(
        rows_RT=torch.from_numpy(rows.astype(np.int64)).to(device),
        document_RT=torch.from_numpy(owner.astype(np.int64)).to(device),
        source_D=data["source"],
        bytes_D=data["bytes"],
        names=[str(n) for n in data["names"]],
    )
