"""How does a kernel written in CUDA get a tensor map, with which the copy engine moves tiles?"""

from typing import Any

import tilelang.language as T

__all__ = ["matrix_map"]

_NO_INTERLEAVE, _FETCH_128_BYTES, _ZEROS_OUTSIDE = 0, 2, 0
_DTYPES = {"float32": (7, 4), "bfloat16": (9, 2)}
_SWIZZLES = {16: 0, 32: 1, 64: 2, 128: 3}
"""Numbers of the CUDA driver's enumerations: by dtype with its bytes, and by bytes of a box's row,
all of which are swizzled."""


def matrix_map(
    matrix: Any,
    rows: Any,
    columns: int,
    box_rows: int,
    *,
    box_columns: int = 64,
    dtype: str = "bfloat16",
) -> Any:
    """Describe a contiguous matrix, moved in boxes of ``box_rows`` times ``box_columns``.

    The host makes it from the tensor's address at each launch; what lies outside reads as zeros and
    is not written.

    Args:
        matrix: the argument of the PrimFunc.
        rows: its rows, may be symbolic.
        columns: its columns; 16 bytes or a multiple.
        box_rows: at most 256.
        box_columns: 16, 32, 64 or 128 bytes.
        dtype: of the matrix.
    """
    number, size = _DTYPES[dtype]
    return T.create_tma_descriptor(
        number,
        2,
        matrix.data,
        *(columns, rows),
        *(size, size * columns),
        *(box_columns, box_rows),
        *(1, 1),
        _NO_INTERLEAVE,
        _SWIZZLES[size * box_columns],
        _FETCH_128_BYTES,
        _ZEROS_OUTSIDE,
    )
