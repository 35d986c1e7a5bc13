"""Expert activation, rounded. Twin: ``interfaces.transform``, ``swiglu_rounded``.

The formula of ``transform_swiglu``; lanes that have a group together then find its scale.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.transform_runs import SwigluCastSpec

from deepinfer_nvidia.kernels.block_rounding import round_groups
from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.expert_activation import activated
from deepinfer_nvidia.kernels.vectors import VectorTuning, vector_tuning

__all__ = ["build", "default_tuning"]


def default_tuning(spec: SwigluCastSpec) -> VectorTuning:
    """A vector of gates and one of ups a lane."""
    return vector_tuning(spec.dtype, spec.width, spec.row_stride)


def build(spec: SwigluCastSpec, tuning: VectorTuning) -> Any:
    """Gate and up of ``spec.width`` channels each, whole groups."""
    return _routed(spec, tuning) if spec.has_route else _plain(spec, tuning)


def _routed(spec: SwigluCastSpec, tuning: VectorTuning) -> Any:
    rows, width = T.dynamic("rows"), spec.width
    activate, blocks = _activate(spec, tuning), _blocks(spec, tuning, rows)

    @T.prim_func
    def transform_swiglu_cast(
        gate_up_R2I: T.StridedTensor((rows, 2 * width), (spec.row_stride, 1), spec.dtype),
        route_R: T.Tensor((rows,), "float32"),
        rounded_RI: T.Tensor((rows, width), "bfloat16"),
    ) -> None:
        with T.Kernel(blocks, threads=tuning.threads) as block:
            let_next_start(rows)
            T.pdl_sync()
            activate(gate_up_R2I, route_R, rounded_RI, rows, block)

    return transform_swiglu_cast


def _plain(spec: SwigluCastSpec, tuning: VectorTuning) -> Any:
    rows, width = T.dynamic("rows"), spec.width
    activate, blocks = _activate(spec, tuning), _blocks(spec, tuning, rows)

    @T.prim_func
    def transform_swiglu_cast(
        gate_up_R2I: T.StridedTensor((rows, 2 * width), (spec.row_stride, 1), spec.dtype),
        rounded_RI: T.Tensor((rows, width), "bfloat16"),
    ) -> None:
        with T.Kernel(blocks, threads=tuning.threads) as block:
            let_next_start(rows)
            T.pdl_sync()
            activate(gate_up_R2I, None, rounded_RI, rows, block)

    return transform_swiglu_cast


def _blocks(spec: SwigluCastSpec, tuning: VectorTuning, rows: Any) -> Any:
    return T.ceildiv(rows * (spec.width // tuning.vector), tuning.threads)


def _activate(spec: SwigluCastSpec, tuning: VectorTuning) -> Any:
    """What one block does, as a macro of both variants."""
    width, vector, dtype = spec.width, tuning.vector, spec.dtype
    limit = T.float32(spec.limit)
    per_row = width // vector
    rounds = round_groups(spec.number_format, vector)

    @T.macro
    def activate(gate_up_R2I: Any, route_R: Any, rounded_RI: Any, rows: Any, block: Any) -> None:
        index = block * tuning.threads + T.get_thread_binding()
        row = index // per_row
        first = index % per_row * vector
        gate = T.alloc_local((vector,), dtype)
        up = T.alloc_local((vector,), dtype)
        x = T.alloc_local((vector,), "float32")
        for v in T.unroll(vector):
            x[v] = 0.0
        if index < rows * per_row:
            for v in T.vectorized(vector):
                gate[v] = gate_up_R2I[row, first + v]
            for v in T.vectorized(vector):
                up[v] = gate_up_R2I[row, width + first + v]
            for v in T.unroll(vector):
                active = activated(T.cast(gate[v], "float32"), T.cast(up[v], "float32"), limit)
                x[v] = T.cast(
                    T.cast(active if route_R is None else active * route_R[row], dtype), "float32"
                )
        rounds(x)
        if index < rows * per_row:
            for v in T.vectorized(vector):
                rounded_RI[row, first + v] = T.cast(x[v], "bfloat16")

    return activate
