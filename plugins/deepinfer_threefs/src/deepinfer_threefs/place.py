"""Where and how are blocks kept? What a configuration says of it, in plain data."""

from __future__ import annotations

import os
from dataclasses import dataclass

__all__ = ["StorePlace", "make_private"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePlace:
    """What ``options.PosixOptions`` says beside the limits.

    Attributes:
        folder: of the store.
        lane: subfolder of each group's folder that this process writes to.
        segment_bytes: length at which a file is full.
        durable: whether blocks are on the medium before they can be found.
        refresh_s: seconds between looks for what others wrote; 0: only when opened and swept.
    """

    folder: str
    lane: str = "0"
    segment_bytes: int = 1 << 30
    durable: bool = True
    refresh_s: float = 1.0


def make_private(folder: str, *parts: str) -> str:
    """A folder below another one, both for this user only; made where they are not there.

    Raises:
        OSError: they cannot be made.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    for part in parts:
        folder = os.path.join(folder, part)
        os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder
