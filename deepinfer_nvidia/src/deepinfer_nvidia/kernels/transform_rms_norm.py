"""RMS norm of rows. Twin: ``deepinfer_core.reference.transform``, ``rms_norm``.

One block a row; the squares are summed in fp32 in an order that the width and the threads fix.
"""

from typing import Any

import tilelang.language as T

from deepinfer_core.interfaces.operators.transform import RmsNormSpec
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["build"]


def build(spec: RmsNormSpec, tuning: KernelTuning) -> Any:
    """Rows of ``spec.width`` channels."""
    rows = T.dynamic("rows")
    width, dtype, eps = spec.width, spec.dtype, spec.eps

    @T.prim_func
    def transform_rms_norm(
        x_TD: T.Tensor((rows, width), dtype),
        weight_D: T.Tensor((width,), spec.weight_dtype),
        out_TD: T.Tensor((rows, width), dtype),
    ) -> None:
        with T.Kernel(rows, threads=tuning.threads) as row:
            x = T.alloc_fragment((1, width), "float32")
            square = T.alloc_fragment((1, width), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(x_TD[row : row + 1, :], x)
            for i, j in T.Parallel(1, width):
                square[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(square, total, dim=1)
            for i, j in T.Parallel(1, width):
                out_TD[row + i, j] = T.cast(
                    x[i, j] * T.rsqrt(total[i] / width + eps) * weight_D[j], dtype
                )

    return transform_rms_norm
