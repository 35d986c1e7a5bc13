"""What can be set about the stores? ``components.kv_store.options`` of a configuration."""

from __future__ import annotations

import re

from deepinfer_core.config.store_options import StoreOptions
from pydantic import Field, field_validator

__all__ = ["PosixOptions", "UsrbioOptions"]

_GIB = 1 << 30


class PosixOptions(StoreOptions):
    """Options of kv_store ``threefs.posix``.

    Attributes:
        folder: where blocks are kept; may be shared by many processes and machines, which are all
            to have the same limits.
        capacity_bytes: that blocks of all of them may take there.
        lane: subfolder that this process writes to; all are read. Files of one subfolder are
            treated alike by the file system, as with 3FS chain tables.
        segment_bytes: length at which a file is full.
        durable: whether blocks are on the medium before they can be found.
        refresh_s: seconds between looks for what others wrote; 0: only when opened and swept.
    """

    folder: str = Field(min_length=1)
    capacity_bytes: int = Field(default=64 * _GIB, ge=1)
    lane: str = "0"
    segment_bytes: int = Field(default=_GIB, ge=4096)
    durable: bool = True
    refresh_s: float = Field(default=1.0, ge=0, allow_inf_nan=False)

    @field_validator("lane")
    @classmethod
    def _is_a_folder(cls, value: str) -> str:
        if not re.fullmatch(r"[a-z0-9_]{1,32}", value):
            raise ValueError("expected 1 to 32 of the characters a-z, 0-9 and _")
        return value


class UsrbioOptions(PosixOptions):
    """Options of kv_store ``threefs.usrbio``.

    Attributes:
        ring_entries: reads, or writes, that one thread has in flight.
        rings: of each direction; as many threads read, or write, at one time.
        retries: how often a block is read again that the file system is still changing.
        chunk_bytes: of files below the folder, as 3FS was told; holes are made of whole chunks.
    """

    ring_entries: int = Field(default=64, ge=1, le=4096)
    rings: int = Field(default=4, ge=1, le=64)
    retries: int = Field(default=3, ge=0)
    chunk_bytes: int = Field(default=1 << 20, ge=4096, multiple_of=4096)
