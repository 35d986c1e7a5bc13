"""Are two checkpoints the same?

The quick fingerprint covers the configuration, the index, and of each file its name, size and
header. Two checkpoints that differ only in values of equal shape therefore share it; copies and
conversions do not get mixed up. The full fingerprint adds every byte of data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from deepinfer_core.weights.index import INDEX_NAME
from deepinfer_core.weights.shard import Shard

__all__ = ["fingerprint"]


def fingerprint(folder: Path, shards: Iterable[Shard], *, full: bool = False) -> str:
    """Return a SHA-256 in hexadecimal.

    Args:
        folder: of the checkpoint.
        shards: its files, sorted by name.
        full: read all data as well.
    """
    digest = hashlib.sha256()
    for name in ("config.json", INDEX_NAME):
        path = folder / name
        content = path.read_bytes() if path.exists() else b""
        digest.update(f"{name} {len(content)}\n".encode() + content)
    for shard in shards:
        digest.update(f"{shard.path.name} {shard.size_bytes} {len(shard.header)}\n".encode())
        digest.update(shard.header)
        if full:
            with shard.path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
