"""Expert activation. Twin: ``deepinfer_core.reference.transform``, ``swiglu``.

The same formula; the exponential is the device's.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.transform import SwigluSpec

from deepinfer_nvidia.kernels.vectors import VectorTuning, vector_tuning

__all__ = ["build", "default_tuning"]


def default_tuning(spec: SwigluSpec) -> VectorTuning:
    """One vector a thread; the narrower dtype is read or written in half accesses at worst."""
    return vector_tuning(spec.dtype, spec.width, spec.row_stride)


def build(spec: SwigluSpec, tuning: VectorTuning) -> Any:
    """Gate and up of ``spec.width`` channels each, a multiple of ``tuning.vector``."""
    rows = T.dynamic("rows")
    width, dtype, out_dtype, vector = spec.width, spec.dtype, spec.out_dtype, tuning.vector
    limit = T.float32(spec.limit)
    per_row = width // vector
    per_block = tuning.threads * tuning.vectors

    @T.macro
    def activate(gate_up_R2I: Any, route: Any, out_RI: Any, block: Any) -> None:
        thread = T.get_thread_binding()
        gate = T.alloc_local((vector,), dtype)
        up = T.alloc_local((vector,), dtype)
        out = T.alloc_local((vector,), out_dtype)
        for step in T.unroll(tuning.vectors):
            index = block * per_block + step * tuning.threads + thread
            row = index // per_row
            first = index % per_row * vector
            if index < rows * per_row:
                for v in T.vectorized(vector):
                    gate[v] = gate_up_R2I[row, first + v]
                for v in T.vectorized(vector):
                    up[v] = gate_up_R2I[row, width + first + v]
                for v in T.unroll(vector):
                    # Comparisons, since the device's minimum loses a NaN.
                    g = T.cast(gate[v], "float32")
                    g = T.if_then_else(g > limit, limit, g)
                    u = T.cast(up[v], "float32")
                    u = T.if_then_else(u > limit, limit, T.if_then_else(u < -limit, -limit, u))
                    active = g / (T.exp(-g) + T.float32(1)) * u
                    out[v] = T.cast(active if route is None else active * route[row], out_dtype)
                for v in T.vectorized(vector):
                    out_RI[row, first + v] = out[v]

    if spec.has_route:

        @T.prim_func
        def transform_swiglu(
            gate_up_R2I: T.StridedTensor((rows, 2 * width), (spec.row_stride, 1), dtype),
            route_R: T.Tensor((rows,), "float32"),
            out_RI: T.Tensor((rows, width), out_dtype),
        ) -> None:
            with T.Kernel(T.ceildiv(rows * per_row, per_block), threads=tuning.threads) as block:
                activate(gate_up_R2I, route_R, out_RI, block)

        return transform_swiglu

    @T.prim_func
    def transform_swiglu_plain(
        gate_up_R2I: T.StridedTensor((rows, 2 * width), (spec.row_stride, 1), dtype),
        out_RI: T.Tensor((rows, width), out_dtype),
    ) -> None:
        with T.Kernel(T.ceildiv(rows * per_row, per_block), threads=tuning.threads) as block:
            activate(gate_up_R2I, None, out_RI, block)

    return transform_swiglu_plain
