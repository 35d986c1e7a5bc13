"""Products in fp32, one input after the other. Twin: ``deepinfer_core.reference.gemm``.

A lane owns outputs and walks K alone, so a row's bits depend on nothing else. Made for fp32 rows or
weights and for narrow shapes.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.gemm import GemmSmallF32Spec

from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["build", "default_tuning"]

_ROWS = 8
"""Rows that share a weight once it is read."""


def default_tuning(_spec: GemmSmallF32Spec) -> KernelTuning:
    """Small blocks, as shapes are narrow."""
    return KernelTuning(threads=64)


def build(spec: GemmSmallF32Spec, tuning: KernelTuning) -> Any:
    """Any number of rows."""
    rows = T.dynamic("rows")
    groups, out_width, in_width = spec.groups, spec.out_width, spec.in_width
    channels = tuning.threads

    @T.prim_func
    def gemm_small_f32(
        x_TGK: T.Tensor((rows, groups, in_width), spec.x_dtype),
        weight_GNK: T.Tensor((groups, out_width, in_width), spec.weight_dtype),
        out_TGN: T.Tensor((rows, groups, out_width), spec.out_dtype),
    ) -> None:
        with T.Kernel(
            T.ceildiv(out_width, channels), groups, T.ceildiv(rows, _ROWS), threads=tuning.threads
        ) as (across, group, down):
            let_next_start(rows)
            T.pdl_sync()
            total = T.alloc_fragment((channels, _ROWS), "float32")
            T.clear(total)
            for k in T.serial(in_width):
                for i, j in T.Parallel(channels, _ROWS):
                    channel = T.min(across * channels + i, out_width - 1)
                    row = T.min(down * _ROWS + j, rows - 1)
                    total[i, j] = total[i, j] + T.cast(x_TGK[row, group, k], "float32") * T.cast(
                        weight_GNK[group, channel, k], "float32"
                    )
            for i, j in T.Parallel(channels, _ROWS):
                channel = across * channels + i
                row = down * _ROWS + j
                if channel < out_width and row < rows:
                    out_TGN[row, group, channel] = T.cast(total[i, j], spec.out_dtype)

    return gemm_small_f32
