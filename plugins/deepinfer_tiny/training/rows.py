"""How do documents on disk become token rows on the device?"""

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
