"""Expert activation. Twin: ``deepinfer_core.reference.transform``, ``swiglu``.

The same formula; the exponential is the device's.
"""

from dataclasses import replace
from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.transform import SwigluSpec

from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.expert_activation import activated
from deepinfer_nvidia.kernels.vectors import VectorTuning, vector_tuning

__all__ = ["build", "default_tuning"]

_MOST_VECTORS = 4
_ROW_THREADS = range(64, 321, 32)


def default_tuning(spec: SwigluSpec) -> VectorTuning:
    """A block a row, where that is a few vectors of whole warps; then rows cost no division."""
    tuning = vector_tuning(spec.dtype, spec.width, spec.row_stride)
    per_row = spec.width // tuning.vector
    for vectors in range(1, _MOST_VECTORS + 1):
        threads, rest = divmod(per_row, vectors)
        if not rest and threads in _ROW_THREADS:
            return replace(tuning, threads=threads, vectors=vectors)
    return tuning


def build(spec: SwigluSpec, tuning: VectorTuning) -> Any:
    """Gate and up of ``spec.width`` channels each, a multiple of ``tuning.vector``."""
    return _routed(spec, tuning) if spec.has_route else _plain(spec, tuning)


def _routed(spec: SwigluSpec, tuning: VectorTuning) -> Any:
    rows = T.dynamic("rows")
    width, threads = spec.width, tuning.threads
    activate, vectors = _activate(spec, tuning), width // tuning.vector

    @T.prim_func
    def transform_swiglu(
        gate_up_R2I: T.StridedTensor((rows, 2 * width), (spec.row_stride, 1), spec.dtype),
        route_R: T.Tensor((rows,), "float32"),
        out_RI: T.Tensor((rows, width), spec.out_dtype),
    ) -> None:
        with T.Kernel(
            T.ceildiv(rows * vectors, threads * tuning.vectors), threads=threads
        ) as block:
            let_next_start(rows)
            T.pdl_sync()
            activate(gate_up_R2I, route_R, out_RI, rows, block)

    return transform_swiglu


def _plain(spec: SwigluSpec, tuning: VectorTuning) -> Any:
    rows = T.dynamic("rows")
    width, threads = spec.width, tuning.threads
    activate, vectors = _activate(spec, tuning), width // tuning.vector

    @T.prim_func
    def transform_swiglu(
        gate_up_R2I: T.StridedTensor((rows, 2 * width), (spec.row_stride, 1), spec.dtype),
        out_RI: T.Tensor((rows, width), spec.out_dtype),
    ) -> None:
        with T.Kernel(
            T.ceildiv(rows * vectors, threads * tuning.vectors), threads=threads
        ) as block:
            let_next_start(rows)
            T.pdl_sync()
            activate(gate_up_R2I, None, out_RI, rows, block)

    return transform_swiglu


def _activate(spec: SwigluSpec, tuning: VectorTuning) -> Any:
    """What one block does, as a macro of both variants."""
    width, vector, out_dtype = spec.width, tuning.vector, spec.out_dtype
    limit = T.float32(spec.limit)
    per_row = width // vector

    @T.macro
    def activate(gate_up_R2I: Any, route_R: Any, out_RI: Any, rows: Any, block: Any) -> None:
        thread = T.get_thread_binding()
        gate = T.alloc_local((vector,), spec.dtype)
        up = T.alloc_local((vector,), spec.dtype)
        out = T.alloc_local((vector,), out_dtype)
        for step in T.unroll(tuning.vectors):
            index = (block * tuning.vectors + step) * tuning.threads + thread
            row = index // per_row
            first = index % per_row * vector
            if index < rows * per_row:
                for v in T.vectorized(vector):
                    gate[v] = gate_up_R2I[row, first + v]
                for v in T.vectorized(vector):
                    up[v] = gate_up_R2I[row, width + first + v]
                for v in T.unroll(vector):
                    active = activated(T.cast(gate[v], "float32"), T.cast(up[v], "float32"), limit)
                    out[v] = T.cast(active if route_R is None else active * route_R[row], out_dtype)
                for v in T.vectorized(vector):
                    out_RI[row, first + v] = out[v]

    return activate
