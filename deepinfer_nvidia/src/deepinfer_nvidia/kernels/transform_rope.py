"""Rotary positions. Twin: ``deepinfer_core.reference.transform``, ``rope``, with the same bits.

A thread turns vectors of neighbouring channels of one head, whole pairs; it reads a vector before
it writes it, so the result may replace the input. Products are rounded before they are added:
a contracted multiply-add would give other bits.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.transform import RopeSpec

from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.rotation import turned
from deepinfer_nvidia.kernels.vectors import VectorTuning, vector_tuning

__all__ = ["build", "default_tuning"]


def default_tuning(spec: RopeSpec) -> VectorTuning:
    """Vectors of whole pairs."""
    plain = spec.width - 2 * spec.pairs
    strides = (*spec.strides, *spec.out_strides)
    return vector_tuning(spec.dtype, plain, 2 * spec.pairs, *strides, smallest=2)


def build(spec: RopeSpec, tuning: VectorTuning) -> Any:
    """Heads of ``spec.width`` channels; ``tuning.vector`` divides the plain and turned ones."""
    rows = T.dynamic("rows")
    heads, width, dtype, vector = spec.heads, spec.width, spec.dtype, tuning.vector
    pairs, plain = vector // 2, spec.width - 2 * spec.pairs
    start = plain if spec.is_in_place else 0
    per_head = (width - start) // vector
    per_block = tuning.threads * tuning.vectors
    sign = -1.0 if spec.is_inverse else 1.0

    @T.prim_func
    def transform_rope(
        x_THD: T.StridedTensor((rows, heads, width), (*spec.strides, 1), dtype),
        cosine_TP: T.Tensor((rows, spec.pairs), "float32"),
        sine_TP: T.Tensor((rows, spec.pairs), "float32"),
        out_THD: T.StridedTensor((rows, heads, width), (*spec.out_strides, 1), dtype),
    ) -> None:
        with T.Kernel(
            T.ceildiv(rows * heads * per_head, per_block), threads=tuning.threads
        ) as block:
            let_next_start(rows)
            T.pdl_sync()
            thread = T.get_thread_binding()
            x = T.alloc_local((vector,), dtype)
            cosine = T.alloc_local((pairs,), "float32")
            sine = T.alloc_local((pairs,), "float32")
            for step in T.unroll(tuning.vectors):
                index = block * per_block + step * tuning.threads + thread
                row = index // (heads * per_head)
                head = index // per_head % heads
                first = start + index % per_head * vector
                if index < rows * heads * per_head:
                    for v in T.vectorized(vector):
                        x[v] = x_THD[row, head, first + v]
                    if first >= plain:
                        for v in T.vectorized(pairs):
                            cosine[v] = cosine_TP[row, (first - plain) // 2 + v]
                        for v in T.vectorized(pairs):
                            sine[v] = sine_TP[row, (first - plain) // 2 + v]
                        for p in T.unroll(pairs):
                            even = T.cast(x[2 * p], "float32")
                            odd = T.cast(x[2 * p + 1], "float32")
                            first_of, second_of = turned(even, odd, cosine[p], sine[p] * sign)
                            x[2 * p] = T.cast(first_of, dtype)
                            x[2 * p + 1] = T.cast(second_of, dtype)
                    for v in T.vectorized(vector):
                        out_THD[row, head, first + v] = x[v]

    return transform_rope
