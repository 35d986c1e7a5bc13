"""Rounding to a block format and back. Twin: ``deepinfer_core.numeric``, ``fake_quantise``.

With the bits of the twin, but for the payload of a NaN. All rows are one list of groups, four lanes
or so to a group. The largest magnitude is found among the bits, as integers: so a NaN is larger
than infinity, and no maximum can lose it.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.transform import CastSpec
from deepinfer_core.numeric import number_format

from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["build", "default_tuning"]

_LANE_ELEMENTS = 8
_INFINITY_BITS = 0x7F800000
_LARGEST_BITS = 0x7F7FFFFF
_MANTISSA_MASK = 0x7FFFFF
_EXPONENT_MASK = 0x7F800000
_ONE_BITS = 0x3F800000
_SIGN_BIT = -(1 << 31)


def default_tuning(_spec: CastSpec) -> KernelTuning:
    """Enough loads in flight to hide their latency."""
    return KernelTuning(threads=128)


def build(spec: CastSpec, tuning: KernelTuning) -> Any:
    """Rows of ``spec.width`` channels, whole groups."""
    rows = T.dynamic("rows")
    width, dtype, name = spec.width, spec.dtype, spec.number_format
    group = number_format(name).group_columns
    per_row = width // group
    block_groups = tuning.threads * _LANE_ELEMENTS // group

    @T.prim_func
    def transform_cast(
        x_TD: T.StridedTensor((rows, width), (spec.row_stride, 1), dtype),
        out_TD: T.Tensor((rows, width), spec.out_dtype),
    ) -> None:
        with T.Kernel(T.ceildiv(rows * per_row, block_groups), threads=tuning.threads) as block:
            x = T.alloc_fragment((block_groups, group), dtype)
            size = T.alloc_fragment((block_groups, group), "int32")
            largest = T.alloc_fragment((block_groups,), "int32")
            scale = T.alloc_fragment((block_groups,), "float32")
            inverse = T.alloc_fragment((block_groups,), "float32")
            for g, j in T.Parallel(block_groups, group):
                at = block * block_groups + g
                x[g, j] = T.if_then_else(
                    at < rows * per_row,
                    x_TD[at // per_row, at % per_row * group + j],
                    T.cast(0, dtype),
                )
            for g, j in T.Parallel(block_groups, group):
                bits = T.reinterpret(T.cast(x[g, j], "float32"), "int32") & 0x7FFFFFFF
                size[g, j] = _counted(name, bits)
            T.reduce_max(size, largest, dim=1)
            for g in T.Parallel(block_groups):
                scale[g] = _scale(name, largest[g])
                inverse[g] = T.float32(1) / scale[g]
            for g, j in T.Parallel(block_groups, group):
                scaled = T.cast(x[g, j], "float32") * inverse[g]
                x[g, j] = T.cast(_rounded(name, scaled) * scale[g], dtype)
            for g, j in T.Parallel(block_groups, group):
                at = block * block_groups + g
                if at < rows * per_row:
                    out_TD[at // per_row, at % per_row * group + j] = T.cast(
                        x[g, j], spec.out_dtype
                    )

    return transform_cast


def _counted(name: str, bits: Any) -> Any:
    """The bits of a magnitude as they count: e4m3 can hold a NaN itself, e2m1 cannot."""
    return T.if_then_else(bits > _INFINITY_BITS, 0, bits) if name == "mxfp8" else bits


def _scale(name: str, bits: Any) -> Any:
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


def _rounded(name: str, scaled: Any) -> Any:
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
