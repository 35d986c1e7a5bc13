"""Weighted sum of streams. Twin: ``deepinfer_core.reference.hyper_connections``, ``collapse``.

With the bits of the twin: products are rounded, then added in the order of the streams.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.transform import MhcStreamsSpec

from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.stream_sums import weighted_sum
from deepinfer_nvidia.kernels.vectors import VectorTuning, vector_tuning

__all__ = ["build", "default_tuning"]


def default_tuning(spec: MhcStreamsSpec) -> VectorTuning:
    """One vector of every stream a thread."""
    return vector_tuning(spec.dtype, spec.width)


def build(spec: MhcStreamsSpec, tuning: VectorTuning) -> Any:
    """Streams of ``spec.width`` channels, a multiple of ``tuning.vector``."""
    rows = T.dynamic("rows")
    streams, width, dtype, vector = spec.streams, spec.width, spec.dtype, tuning.vector
    per_row = width // vector
    per_block = tuning.threads * tuning.vectors

    @T.prim_func
    def transform_mhc_collapse(
        trunk_TSD: T.Tensor((rows, streams, width), dtype),
        pre_TS: T.Tensor((rows, streams), "float32"),
        out_TD: T.Tensor((rows, width), dtype),
    ) -> None:
        with T.Kernel(T.ceildiv(rows * per_row, per_block), threads=tuning.threads) as block:
            let_next_start(rows)
            T.pdl_sync()
            thread = T.get_thread_binding()
            h = T.alloc_local((streams, vector), dtype)
            out = T.alloc_local((vector,), dtype)
            for step in T.unroll(tuning.vectors):
                index = block * per_block + step * tuning.threads + thread
                row = index // per_row
                first = index % per_row * vector
                if index < rows * per_row:
                    for s in T.unroll(streams):
                        for v in T.vectorized(vector):
                            h[s, v] = trunk_TSD[row, s, first + v]
                    for v in T.unroll(vector):
                        total = weighted_sum(
                            [pre_TS[row, s] for s in range(streams)],
                            [h[s, v] for s in range(streams)],
                        )
                        out[v] = T.cast(total, dtype)
                    for v in T.vectorized(vector):
                        out_TD[row, first + v] = out[v]

    return transform_mhc_collapse
