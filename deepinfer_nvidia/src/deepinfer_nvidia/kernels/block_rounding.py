"""How are numbers rounded to a block format and back? Expressions that several kernels use.

The rules are those of ``deepinfer_core.numeric``, ``fake_quantise``, with its bits but for the
payload of a NaN. The largest magnitude of a group is found among the bits, as integers: so a NaN is
larger than infinity, and no maximum can lose it.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.numeric import number_format

__all__ = ["counted_bits", "group_lanes", "nearest", "round_groups", "scale_of"]

_INFINITY_BITS = 0x7F800000
_LARGEST_BITS = 0x7F7FFFFF
_MANTISSA_MASK = 0x7FFFFF
_EXPONENT_MASK = 0x7F800000
_ONE_BITS = 0x3F800000
_SIGN_BIT = -(1 << 31)


def group_lanes(name: str, vector: int) -> int:
    """Neighbouring lanes that have a group together, if each has a vector of it."""
    return number_format(name).group_columns // vector


def round_groups(name: str, vector: int) -> Any:
    """A macro that rounds the vector of each lane in place, fp32, with its group's scale.

    All lanes of a warp run it. Lanes that have no numbers take part with any.
    """
    lanes = group_lanes(name, vector)
    steps = [1 << bit for bit in range(lanes.bit_length() - 1)]

    @T.macro
    def rounds(x: Any) -> None:
        largest = T.alloc_var("int32")
        scale = T.alloc_var("float32")
        inverse = T.alloc_var("float32")
        largest = 0
        for v in T.unroll(vector):
            largest = T.max(largest, counted_bits(name, T.reinterpret(x[v], "int32") & 0x7FFFFFFF))
        for step in steps:
            largest = T.max(largest, T.shfl_xor(largest, step))
        scale = scale_of(name, largest)
        inverse = T.float32(1) / scale
        for v in T.unroll(vector):
            x[v] = nearest(name, x[v] * inverse) * scale

    return rounds


def counted_bits(name: str, bits: Any) -> Any:
    """The bits of a magnitude as they count: e4m3 can hold a NaN itself, e2m1 cannot."""
    return T.if_then_else(bits > _INFINITY_BITS, 0, bits) if name == "mxfp8" else bits


def scale_of(name: str, bits: Any) -> Any:
    """The scale of a group from its largest bits; a NaN stays one, infinity counts as finite."""
    smallest, most = {
        "mxfp8": (1e-4, 448.0),
        "mxfp4": (6 * 2.0**-126, 6.0),
        "fp4_e4m3x16": (6 * 2.0**-9, 6.0),
    }[name]
    bits = T.if_then_else(bits == _INFINITY_BITS, _LARGEST_BITS, bits)
    amax = T.reinterpret(bits, "float32")
    amax = T.if_then_else(amax < T.float32(smallest), T.float32(smallest), amax)
    ratio = amax * T.float32(1 / most)
    if name == "fp4_e4m3x16":
        # Saturates; keeps NaN.
        return T.cast(T.cast(ratio, "float8_e4m3fn"), "float32")
    # Up to the next power of two: the exponent, and one more if there is any mantissa.
    power = T.reinterpret(ratio, "int32") + _MANTISSA_MASK
    return T.reinterpret(
        T.if_then_else(bits > _INFINITY_BITS, bits, power & ~_MANTISSA_MASK), "float32"
    )


def nearest(name: str, scaled: Any) -> Any:
    """The nearest number of the format, ties to even codes, saturating."""
    if name == "mxfp8":
        return T.cast(T.cast(scaled, "float8_e4m3fn"), "float32")
    # e2m1 has one bit behind the leading one, and steps of 1/2 below 1. A number so large that its
    # own steps are those is added and taken away again; the sign, also of zero, comes last.
    size = T.min(T.abs(scaled), T.float32(6))
    power = T.max(T.reinterpret(size, "int32") & _EXPONENT_MASK, _ONE_BITS)
    large = T.reinterpret(power, "float32") * T.float32(1.5 * 2.0**22)
    rounded = T.ieee_sub(T.ieee_add(size, large), large)
    sign = T.reinterpret(scaled, "int32") & _SIGN_BIT
    return T.reinterpret(T.reinterpret(rounded, "int32") | sign, "float32")
