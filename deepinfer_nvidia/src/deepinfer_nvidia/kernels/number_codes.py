"""How are cache formats computed on a GPU? Expressions that several kernels use.

The rules are those of ``deepinfer_core.numeric``, bit for bit. All of them work on the bits of fp32
numbers, so that NaN and infinity need no luck with the comparisons of a device.
"""

from typing import Any

import tilelang.language as T

__all__ = [
    "INFINITY_BITS",
    "LARGEST_BITS",
    "NAN_BITS",
    "ceil_log2_byte",
    "e2m1_code",
    "e2m1_value",
    "magnitude_bits",
    "reciprocal_of_byte",
    "value_of_byte",
]

INFINITY_BITS = 0x7F800000
LARGEST_BITS = 0x7F7FFFFF
NAN_BITS = 0x7FC00000
_MANTISSA_BITS = 23


def magnitude_bits(x: Any) -> Any:
    """Bits of the absolute value of an fp32 number: they order like the values, NaN on top."""
    return T.reinterpret(x, "int32") & 0x7FFFFFFF


def ceil_log2_byte(x: Any) -> Any:
    """The ue8m0 byte, as int32, of the smallest power of two not below x, a normal number."""
    return (T.reinterpret(x, "int32") + 0x7FFFFF) >> _MANTISSA_BITS


def reciprocal_of_byte(byte: Any) -> Any:
    """1 / 2^(byte - 127) as fp32, for int32 bytes up to 253."""
    return T.reinterpret((254 - byte) << _MANTISSA_BITS, "float32")


def value_of_byte(byte: Any) -> Any:
    """2^(byte - 127) as fp32 for an int32 byte; 0 gives a subnormal number and 255 NaN."""
    normal = T.if_then_else(byte == 255, NAN_BITS, byte << _MANTISSA_BITS)
    return T.reinterpret(T.if_then_else(byte == 0, 1 << (_MANTISSA_BITS - 1), normal), "float32")


def e2m1_code(x: Any) -> Any:
    """The four-bit code, as int32, nearest to an fp32 number; ties to even, NaN like 6.

    Values are 0.5 apart below 2, 1 below 4 and 2 above, so that a code is the rounded count of
    such distances, plus 2 or 4: the least of the three. A number rounds to an integer, ties to
    even, when 2^23 is added, and leaves it in the mantissa.
    """
    size, large = T.abs(x), 2.0**23
    count = T.min(
        T.min(size * T.float32(2) + T.float32(large), size + T.float32(large + 2)),
        T.min(size * T.float32(0.5) + T.float32(large + 4), T.float32(large + 7)),
    )
    return (T.reinterpret(count, "int32") & 7) | ((T.reinterpret(x, "int32") >> 28) & 8)


def e2m1_value(code: Any) -> Any:
    """The fp32 number of a four-bit int32 code; the code's bits fit into a tiny fp32 number."""
    tiny = ((code & 7) << (_MANTISSA_BITS - 1)) | ((code & 8) << 28)
    return T.reinterpret(tiny, "float32") * T.float32(2.0**126)
