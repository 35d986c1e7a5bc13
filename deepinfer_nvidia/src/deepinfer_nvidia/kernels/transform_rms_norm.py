"""RMS norm of rows. Twin: ``deepinfer_core.reference.transform``, ``rms_norm``.

One block a row; the squares are summed in fp32 in an order that the width and the threads fix.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.transform import RmsNormSpec

from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.row_norm import norm_tuning
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["build", "default_tuning"]


def default_tuning(spec: RmsNormSpec) -> KernelTuning:
    """One warp for narrow rows, more for wide ones."""
    return norm_tuning(spec.width, spec.dtype)


def build(spec: RmsNormSpec, tuning: KernelTuning) -> Any:
    """Rows of ``spec.width`` channels; the threads must be a power of two."""
    rows = T.dynamic("rows")
    width, dtype, eps = spec.width, spec.dtype, spec.eps
    padded = -(-width // tuning.threads) * tuning.threads

    @T.prim_func
    def transform_rms_norm(
        x_TD: T.StridedTensor((rows, width), (spec.row_stride, 1), dtype),
        weight_D: T.Tensor((width,), spec.weight_dtype),
        out_TD: T.Tensor((rows, width), spec.out_dtype),
    ) -> None:
        with T.Kernel(rows, threads=tuning.threads) as row:
            let_next_start(rows)
            T.pdl_sync()
            x = T.alloc_fragment((1, padded), dtype)
            square = T.alloc_fragment((1, padded), "float32")
            total = T.alloc_fragment((1,), "float32")
            out = T.alloc_fragment((1, padded), spec.out_dtype)
            for i, j in T.Parallel(1, padded):
                x[i, j] = T.if_then_else(j < width, x_TD[row + i, j], T.cast(0, dtype))
            for i, j in T.Parallel(1, padded):
                square[i, j] = T.cast(x[i, j], "float32") * T.cast(x[i, j], "float32")
            T.reduce_sum(square, total, dim=1)
            for i, j in T.Parallel(1, padded):
                if j < width:
                    normed = T.cast(x[i, j], "float32") * T.rsqrt(total[i] / width + eps)
                    out[i, j] = T.cast(normed * T.cast(weight_D[j], "float32"), spec.out_dtype)
            for i, j in T.Parallel(1, padded):
                if j < width:
                    out_TD[row + i, j] = out[i, j]

    return transform_rms_norm
