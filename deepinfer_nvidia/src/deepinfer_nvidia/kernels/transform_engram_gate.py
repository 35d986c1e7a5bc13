"""N-gram values through their gates. Twin: ``deepinfer_core.reference.engram``, ``gated_streams``.

One block a stream of some rows, so that it reads the norm weights once. A row's sums are fp32 in an
order that the width and the threads fix. A thread reads its channels before it writes them, and
nobody else reads them, so the result may replace the trunk.
"""

from dataclasses import dataclass
from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.transform import EngramGateSpec

from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.tuning import KernelTuning
from deepinfer_nvidia.kernels.vectors import row_threads

__all__ = ["Tuning", "build", "default_tuning"]

_SMALLEST_DOT = 1e-6
_MOST_THREADS = 64
"""More of them wait longer for each other in three sums than they save."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(KernelTuning):
    """Adds how many rows a block handles, one after the other."""

    block_rows: int = 2


def default_tuning(spec: EngramGateSpec) -> Tuning:
    """A few rows share one reading of the weights."""
    return Tuning(threads=min(row_threads(spec.width, spec.dtype), _MOST_THREADS))


def build(spec: EngramGateSpec, tuning: Tuning) -> Any:
    """Streams of ``spec.width`` channels; the threads must be a power of two."""
    rows = T.dynamic("rows")
    streams, width, dtype = spec.streams, spec.width, spec.dtype
    padded = -(-width // tuning.threads) * tuning.threads
    eps = T.float32(spec.norm_eps)

    @T.prim_func
    def transform_engram_gate(
        trunk_TSD: T.Tensor((rows, streams, width), dtype),
        key_TSD: T.StridedTensor((rows, streams, width), (spec.key_stride, width, 1), dtype),
        value_TD: T.StridedTensor((rows, width), (spec.value_stride, 1), dtype),
        query_weight_SD: T.Tensor((streams, width), spec.weight_dtype),
        key_weight_SD: T.Tensor((streams, width), spec.weight_dtype),
        image_T: T.Tensor((rows,), "bool"),
        out_TSD: T.Tensor((rows, streams, width), dtype),
    ) -> None:
        with T.Kernel(streams, T.ceildiv(rows, tuning.block_rows), threads=tuning.threads) as (
            stream,
            block,
        ):
            let_next_start(rows)
            T.pdl_sync()
            weight = T.alloc_fragment((1, padded), "float32")
            h = T.alloc_fragment((1, padded), dtype)
            key = T.alloc_fragment((1, padded), dtype)
            value = T.alloc_fragment((1, padded), dtype)
            term = T.alloc_fragment((1, padded), "float32")
            dot = T.alloc_fragment((1,), "float32")
            square = T.alloc_fragment((1,), "float32")
            key_square = T.alloc_fragment((1,), "float32")
            gate = T.alloc_fragment((1,), "float32")
            for i, j in T.Parallel(1, padded):
                weight[i, j] = T.if_then_else(
                    j < width,
                    T.cast(query_weight_SD[stream, j], "float32")
                    * T.cast(key_weight_SD[stream, j], "float32"),
                    T.float32(0),
                )
            first = block * tuning.block_rows
            for row in T.serial(first, T.min(first + tuning.block_rows, rows)):
                for i, j in T.Parallel(1, padded):
                    h[i, j] = T.if_then_else(j < width, trunk_TSD[row, stream, j], T.cast(0, dtype))
                for i, j in T.Parallel(1, padded):
                    key[i, j] = T.if_then_else(j < width, key_TSD[row, stream, j], T.cast(0, dtype))
                for i, j in T.Parallel(1, padded):
                    value[i, j] = T.if_then_else(j < width, value_TD[row, j], T.cast(0, dtype))
                for i, j in T.Parallel(1, padded):
                    term[i, j] = (
                        T.cast(h[i, j], "float32") * weight[i, j] * T.cast(key[i, j], "float32")
                    )
                T.reduce_sum(term, dot, dim=1)
                for i, j in T.Parallel(1, padded):
                    term[i, j] = T.cast(h[i, j], "float32") * T.cast(h[i, j], "float32")
                T.reduce_sum(term, square, dim=1)
                for i, j in T.Parallel(1, padded):
                    term[i, j] = T.cast(key[i, j], "float32") * T.cast(key[i, j], "float32")
                T.reduce_sum(term, key_square, dim=1)
                for i in T.Parallel(1):
                    scaled = (
                        dot[i]
                        * T.rsqrt(square[i] / width + eps)
                        * (T.rsqrt(key_square[i] / width + eps) * T.float32(width**-0.5))
                    )
                    size = T.abs(scaled)
                    size = T.if_then_else(size < _SMALLEST_DOT, T.float32(_SMALLEST_DOT), size)
                    root = T.sqrt(size)
                    root = T.if_then_else(
                        scaled > 0, root, T.if_then_else(scaled < 0, -root, scaled)
                    )
                    gate[i] = T.float32(1) / (T.exp(-root) + T.float32(1))
                for i, j in T.Parallel(1, padded):
                    added = gate[i] * T.cast(value[i, j], "float32")
                    h[i, j] = T.cast(
                        T.cast(h[i, j], "float32")
                        + T.if_then_else(image_T[row], T.float32(0), added),
                        dtype,
                    )
                for i, j in T.Parallel(1, padded):
                    if j < width:
                        out_TSD[row, stream, j] = h[i, j]

    return transform_engram_gate
