"""RMS norm of rows, rounded. Twin: ``interfaces.transform``, ``rms_norm_rounded``.

One block a row. The norm stays in shared memory, where lanes take vectors of it, so that a group
lies in neighbouring lanes.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.transform_runs import NormCastSpec

from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.row_norm import norm_row, norm_tuning, padded_width, round_row
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["build", "default_tuning"]


def default_tuning(spec: NormCastSpec) -> KernelTuning:
    """As for the norm alone, with its order of a sum."""
    return norm_tuning(spec.width, spec.dtype)


def build(spec: NormCastSpec, tuning: KernelTuning) -> Any:
    """Rows of ``spec.width`` channels, whole groups; the threads must be a power of two."""
    rows = T.dynamic("rows")
    width, dtype = spec.width, spec.dtype
    padded = padded_width(width, tuning.threads)
    norm = norm_row(width, tuning.threads, dtype, spec.eps)
    to_rounded = round_row(width, tuning.threads, dtype, spec.number_format)

    @T.prim_func
    def transform_rms_norm_cast(
        x_TD: T.StridedTensor((rows, width), (spec.row_stride, 1), dtype),
        weight_D: T.Tensor((width,), spec.weight_dtype),
        rounded_TD: T.Tensor((rows, width), "bfloat16"),
    ) -> None:
        with T.Kernel(rows, threads=tuning.threads) as row:
            let_next_start(rows)
            T.pdl_sync()
            x = T.alloc_fragment((1, padded), dtype)
            normed = T.alloc_shared((width,), dtype)
            for i, j in T.Parallel(1, padded):
                x[i, j] = T.if_then_else(j < width, x_TD[row + i, j], T.cast(0, dtype))
            norm(x, weight_D, normed)
            to_rounded(normed, rounded_TD, row)

    return transform_rms_norm_cast
