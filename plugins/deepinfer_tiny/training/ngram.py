"""Which Engram rows does a token read?

The compressed vocabulary merges token ids whose text differs only in case, accents or white
space; primes and multipliers are those of the published hash. Rows are computed on the device
from token ids, so nothing is stored beside the tokens.

Shapes: N tokens, K n-gram orders x heads (columns), G longest n-gram.
"""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from .config import ModelConfig

__all__ = ["NgramTables", "build", "compressed_vocabulary", "history", "rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramTables:
    """Constants of the hash; tensors live on the device of the model."""

    key_V: torch.Tensor  # int64, token id to compressed id
    pad_key: int
    multiplier_LG: torch.Tensor  # int64
    prime_LK: torch.Tensor  # int64
    offset_LK: torch.Tensor  # int64, first row of each column's part
    row_counts: tuple[int, ...]


def _normalise(text: str) -> str:
    folded = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text))
    folded = "".join(c for c in folded if unicodedata.category(c) != "Mn").lower()
    collapsed, in_run = [], False
    for c in folded:
        blank = c in " \t\r\n"
        if not (blank and in_run):
            collapsed.append(" " if blank else c)
        in_run = blank
    joined = "".join(collapsed)
    if joined == " ":
        return joined
    return joined.strip() or text


def compressed_vocabulary(tokenizer_file: Path) -> list[int]:
    """Number the distinct normalised texts of a tokenizer's ids in order of first appearance.

    Args:
        tokenizer_file: a ``tokenizer.json``, read as stored.

    Returns:
        One key for each id, vocabulary and added tokens alike.
    """
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    with tokenizer_file.open(encoding="utf-8") as f:
        stored = json.load(f)
    raw = {i: s for s, i in stored["model"]["vocab"].items()}
    raw.update({t["id"]: t["content"] for t in stored["added_tokens"]})
    seen: dict[str, int] = {}
    keys = []
    for i in range(len(raw)):
        text = tokenizer.decode([i], skip_special_tokens=False)
        keys.append(seen.setdefault(raw[i] if "\ufffd" in text else _normalise(text), len(seen)))
    return keys


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


def build(config: ModelConfig, keys: list[int], device: str = "cpu") -> NgramTables:
    """Primes, multipliers and offsets of every Engram layer.

    Args:
        config: sizes of the hash.
        keys: compressed id of every token id.
        device: of the tables.
    """
    orders, heads = config.engram_max_ngram_size - 1, config.engram_n_heads
    bound = max(1, ((2**63 - 1) // (max(keys) + 1)) // 2)
    used: set[int] = set()
    primes, multipliers = [], []
    for layer in config.engram_layer_ids:
        rng = np.random.default_rng(10007 * layer)
        draws = rng.integers(0, bound, size=orders + 1, dtype=np.int64)
        multipliers.append(draws * 2 + 1)
        row = []
        for _ in range(orders):
            candidate = config.engram_vocab_size
            for _ in range(heads):
                while candidate in used or not _is_prime(candidate):
                    candidate += 1
                used.add(candidate)
                row.append(candidate)
        primes.append(row)
    prime_LK = np.array(primes, dtype=np.int64)
    offset_LK = np.cumsum(prime_LK, axis=1) - prime_LK
    return NgramTables(
        key_V=torch.tensor(keys, device=device),
        pad_key=keys[config.engram_pad_token_id],
        multiplier_LG=torch.from_numpy(np.stack(multipliers)).to(device),
        prime_LK=torch.from_numpy(prime_LK).to(device),
        offset_LK=torch.from_numpy(offset_LK).to(device),
        row_counts=tuple(int(x) for x in prime_LK.sum(axis=1)),
    )


def history(tables: NgramTables, tokens_BT: torch.Tensor, doc_BT: torch.Tensor) -> torch.Tensor:
    """Compressed ids of each token and its predecessors inside the same document.

    Returns:
        int64 [B, T, G]; places before the document's first token hold the padding key.
    """
    key_BT = tables.key_V[tokens_BT]
    parts = [key_BT]
    for k in range(1, tables.multiplier_LG.shape[1]):
        shifted = torch.full_like(key_BT, tables.pad_key)
        same = doc_BT[:, k:] == doc_BT[:, :-k]
        shifted[:, k:] = torch.where(same, key_BT[:, :-k], tables.pad_key)
        parts.append(shifted)
    return torch.stack(parts, dim=-1)


def rows(tables: NgramTables, history_NG: torch.Tensor, which: int, heads: int) -> torch.Tensor:
    """Table rows int64 [N, K] of Engram layer number ``which`` for each token."""
    product = history_NG * tables.multiplier_LG[which]
    mixed, columns = product[..., 0], []
    for k in range(1, product.shape[-1]):
        mixed = mixed ^ product[..., k]
        columns += [mixed] * heads
    return torch.stack(columns, dim=-1) % tables.prime_LK[which] + tables.offset_LK[which]
