"""How does a kernel written in CUDA get a tensor map, with which the copy engine reads tiles?"""

from typing import Any

import tilelang.language as T

__all__ = ["matrix_map"]

_BFLOAT16, _NO_INTERLEAVE, _SWIZZLE_128_BYTES, _FETCH_128_BYTES, _ZEROS_OUTSIDE = 9, 0, 3, 2, 0
"""Numbers of the CUDA driver's enumerations."""

_BOX_COLUMNS = 64
"""128 bytes, the width that is swizzled."""


def matrix_map(matrix: Any, rows: Any, columns: int, box_rows: int) -> Any:
    """Describe a contiguous bf16 matrix, read in boxes of ``box_rows`` times 64 columns.

    The host makes it from the tensor's address at each launch; what lies outside reads as zeros.

    Args:
        matrix: the argument of the PrimFunc.
        rows: its rows, may be symbolic.
        columns: its columns; a multiple of 8.
        box_rows: at most 256.
    """
    return T.create_tma_descriptor(
        _BFLOAT16,
        2,
        matrix.data,
        *(columns, rows),
        *(2, 2 * columns),
        *(_BOX_COLUMNS, box_rows),
        *(1, 1),
        _NO_INTERLEAVE,
        _SWIZZLE_128_BYTES,
        _FETCH_128_BYTES,
        _ZEROS_OUTSIDE,
    )
