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


def default_tuning(_spec: CastSpec) -> KernelTuning:
    """Enough loads in flight to hide their latency."""
    return KernelTuning(threads=256)


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
        out_TD: T.Tensor((rows, width), dtype),
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
                inverse[g] = _inverse(name, scale[g])
            for g, j in T.Parallel(block_groups, group):
                scaled = T.cast(x[g, j], "float32") * inverse[g]
                x[g, j] = T.cast(_rounded(name, scaled) * scale[g], dtype)
            for g, j in T.Parallel(block_groups, group):
                at = block * block_groups + g
                if at < rows * per_row:
                    out_TD[at // per_row, at % per_row * group + j] = x[g, j]

    return transform_cast


def _counted(name: str, bits: Any) -> Any:
    """The bits of a magnitude as they count: e4m3 can hold a NaN itself, e2m1 cannot."""
    finite = T.min(bits, _LARGEST_BITS)
    nan = 0 if name == "mxfp8" else bits
    return T.if_then_else(bits > _INFINITY_BITS, nan, finite)


def _scale(name: str, bits: Any) -> Any:
    """The scale of a group; a NaN among the bits stays one."""
    smallest, most = {
        "mxfp8": (1e-4, 448.0),
        "mxfp4": (6 * 2.0**-126, 6.0),
        "fp4_e4m3x16": (6 * 2.0**-9, 6.0),
    }[name]
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


def _inverse(name: str, scale: Any) -> Any:
    """What elements are multiplied by; for powers of two the same as ``1 / scale``."""
    return T.float32(1) / scale


def _rounded(name: str, scaled: Any) -> Any:
    """The nearest number of the format, ties to even codes, saturating."""
    if name == "mxfp8":
        return T.cast(T.cast(scaled, "float8_e4m3fn"), "float32")
    # Steps of e2m1 are 1/2 below 2, 1 below 4, then 2. Rounding there keeps the sign of zero.
    size = T.abs(scaled)
    finer = T.if_then_else(size < 2, T.float32(2), T.if_then_else(size < 4, 1.0, 0.5))
    coarser = T.if_then_else(size < 2, T.float32(0.5), T.if_then_else(size < 4, 1.0, 2.0))
    return T.max(T.min(T.round(scaled * finer) * coarser, T.float32(6)), T.float32(-6))
