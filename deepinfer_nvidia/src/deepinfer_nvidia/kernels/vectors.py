"""How do row-wise kernels divide rows among threads?

Elementwise kernels see all rows as one list of vectors and give each thread some of them, one
``threads`` apart, so that any width keeps every thread busy and no row's result depends on its
place. Kernels with sums over a row give it a block whose threads share it evenly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["ACCESS_BYTES", "ELEMENT_BYTES", "VectorTuning", "row_threads", "vector_tuning"]

ACCESS_BYTES = 16
"""Of the widest access to memory."""

ELEMENT_BYTES = {"bfloat16": 2, "float32": 4}
"""Dtypes that row-wise kernels read and write."""

_WARP = 32
_MOST_ROW_THREADS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorTuning(KernelTuning):
    """Adds how much a thread does.

    Attributes:
        vector: elements of one access; divides widths and distances between rows.
        vectors: vectors of a thread.
    """

    vector: int
    vectors: int = 1


def vector_tuning(
    dtype: str, *extents: int, smallest: int = 1, threads: int = 128, vectors: int = 1
) -> VectorTuning:
    """The widest vectors that divide all widths and distances, in elements, but no narrower."""
    vector = math.gcd(ACCESS_BYTES // ELEMENT_BYTES[dtype], *extents)
    return VectorTuning(threads=threads, vector=max(vector, smallest), vectors=vectors)


def row_threads(width: int, dtype: str) -> int:
    """Threads of a block that has one row: a power of two that divides its vectors."""
    vectors = -(-width * ELEMENT_BYTES[dtype] // ACCESS_BYTES)
    return max(_WARP, math.gcd(vectors, _MOST_ROW_THREADS))
