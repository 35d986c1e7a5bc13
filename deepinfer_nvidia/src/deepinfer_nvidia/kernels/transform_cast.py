"""Rounding to a block format and back. Twin: ``deepinfer_core.numeric``, ``fake_quantise``.

With the bits of the twin, but for the payload of a NaN. All rows are one list of groups, four lanes
or so to a group. The largest magnitude is found among the bits, as integers: so a NaN is larger
than infinity, and no maximum can lose it.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.transform import CastSpec
from deepinfer_core.numeric import number_format

from deepinfer_nvidia.kernels.block_rounding import counted_bits, nearest, scale_of
from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["build", "default_tuning"]

_LANE_ELEMENTS = 8


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
            let_next_start(rows)
            T.pdl_sync()
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
                size[g, j] = counted_bits(name, bits)
            T.reduce_max(size, largest, dim=1)
            for g in T.Parallel(block_groups):
                scale[g] = scale_of(name, largest[g])
                inverse[g] = T.float32(1) / scale[g]
            for g, j in T.Parallel(block_groups, group):
                scaled = T.cast(x[g, j], "float32") * inverse[g]
                x[g, j] = T.cast(nearest(name, scaled) * scale[g], dtype)
            for g, j in T.Parallel(block_groups, group):
                at = block * block_groups + g
                if at < rows * per_row:
                    out_TD[at // per_row, at % per_row * group + j] = T.cast(
                        x[g, j], spec.out_dtype
                    )

    return transform_cast
