"""Have these bytes changed?

The best that is installed computes new checksums, and each says which one it is: XXH3 with 128 bits
where the package ``xxhash`` is there (several gigabytes a second), CRC-32 of the standard library
otherwise (about one). Both find accidents, neither an attacker.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType

from deepinfer_core.interfaces.kv_store import Buffer

try:
    from xxhash import xxh3_128_digest
except ModuleNotFoundError:
    xxh3_128_digest = None  # type: ignore[assignment]

__all__ = ["CHECKSUMS", "CHECKSUM_BYTES", "CRC_32", "XXH3_128", "best_checksum"]

CHECKSUM_BYTES = 16
"""Bytes of every checksum; shorter ones are filled up with zeros."""

CRC_32 = 1
XXH3_128 = 2


def _crc_32(data: Buffer) -> bytes:
    return zlib.crc32(data).to_bytes(CHECKSUM_BYTES, "little")


def _computable() -> Mapping[int, Callable[[Buffer], bytes]]:
    found: dict[int, Callable[[Buffer], bytes]] = {CRC_32: _crc_32}
    if xxh3_128_digest is not None:
        found[XXH3_128] = xxh3_128_digest
    return MappingProxyType(found)


CHECKSUMS = _computable()
"""What can be computed here, by number."""


def best_checksum() -> int:
    """Number of the checksum that new records get."""
    return max(CHECKSUMS)
