"""How do elementwise kernels divide rows among threads?

They see all rows as one list of vectors and give each thread some of them, one ``threads`` apart, so
that any width keeps every thread busy and no row's result depends on its place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["ACCESS_BYTES", "VectorTuning", "vector_of"]

ACCESS_BYTES = 16
"""Of the widest access to memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorTuning(KernelTuning):
    """Adds how much a thread does.

    Attributes:
        vector: elements of one access; divides widths and distances between rows.
        vectors: vectors of a thread.
    """

    vector: int
    vectors: int = 1


def vector_of(element_bytes: int, *extents: int) -> int:
    """The widest vector that divides all widths and distances."""
    return math.gcd(ACCESS_BYTES // element_bytes, *extents)
