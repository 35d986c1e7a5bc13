"""How many bytes does one cached row take, by number format?

The same figures as the codecs', without torch: memory is planned before a codec is loaded. A codec
that stores rows otherwise says so when its caches are laid out.
"""

from deepinfer_core.errors import NotSupported

__all__ = ["planned_row_bytes"]

_BITS = {"bfloat16": 16, "float32": 32, "float64": 64, "mxfp8": 8, "mxfp4": 4, "fp4_e4m3x16": 4}
"""Bits of one value."""

_GROUPS = {"mxfp8": 32, "mxfp4": 32, "fp4_e4m3x16": 16}
"""Values that share one scale byte."""


def planned_row_bytes(number_format: str, width: int) -> int:
    """Bytes of a row of ``width`` values, scales included.

    Raises:
        NotSupported: no such format, or the width is not a whole number of groups.
    """
    if number_format not in _BITS:
        raise NotSupported(
            f"asked for cache rows in {number_format!r}, found {', '.join(_BITS)}",
            hint="use one of the formats listed",
        )
    group = _GROUPS.get(number_format, 0)
    if group and width % group:
        raise NotSupported(
            f"asked for {number_format} rows of {width} values, found groups of {group}",
            hint="turn model.numerics.cache_quantisation off for this checkpoint",
        )
    return width * _BITS[number_format] // 8 + (width // group if group else 0)
