"""How does a long read or write tell how far it is?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

__all__ = ["LoadProgress", "ProgressListener"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProgress:
    """One event.

    Attributes:
        phase: ``headers`` while files are checked, ``tensors`` while data are read, ``write``.
        bytes_done: bytes of the phase so far; never falls within a phase.
        bytes_total: bytes of the phase.
        name: tensor or file concerned.
    """

    phase: Literal["headers", "tensors", "write"]
    bytes_done: int
    bytes_total: int
    name: str


ProgressListener = Callable[[LoadProgress], None]
