"""Rotary positions, rounded. Twin: ``interfaces.transform``, ``rope_rounded``, with the same bits.

But for the payload of a NaN. A lane has a vector of neighbouring channels of one head, whole pairs;
what turned is rounded to the dtype of rows before its group is.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.transform_runs import RopeCastSpec

from deepinfer_nvidia.kernels.block_rounding import round_groups
from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.rotation import turned
from deepinfer_nvidia.kernels.vectors import VectorTuning, vector_tuning

__all__ = ["build", "default_tuning"]


def default_tuning(spec: RopeCastSpec) -> VectorTuning:
    """Vectors of whole pairs."""
    plain = spec.width - 2 * spec.pairs
    return vector_tuning(spec.dtype, plain, 2 * spec.pairs, *spec.strides, smallest=2)


def build(spec: RopeCastSpec, tuning: VectorTuning) -> Any:
    """Heads of ``spec.width`` channels; ``tuning.vector`` divides the plain and turned ones."""
    rows = T.dynamic("rows")
    heads, width, dtype, vector = spec.heads, spec.width, spec.dtype, tuning.vector
    pairs, plain = vector // 2, spec.width - 2 * spec.pairs
    per_head = width // vector
    rounds = round_groups(spec.number_format, vector)
    sign = -1.0 if spec.is_inverse else 1.0

    @T.prim_func
    def transform_rope_cast(
        x_THD: T.StridedTensor((rows, heads, width), (*spec.strides, 1), dtype),
        cosine_TP: T.Tensor((rows, spec.pairs), "float32"),
        sine_TP: T.Tensor((rows, spec.pairs), "float32"),
        rounded_TX: T.Tensor((rows, heads * width), spec.out_dtype),
    ) -> None:
        with T.Kernel(
            T.ceildiv(rows * heads * per_head, tuning.threads), threads=tuning.threads
        ) as block:
            let_next_start(rows)
            T.pdl_sync()
            index = block * tuning.threads + T.get_thread_binding()
            row = index // (heads * per_head)
            head = index // per_head % heads
            first = index % per_head * vector
            x = T.alloc_local((vector,), dtype)
            wide = T.alloc_local((vector,), "float32")
            cosine = T.alloc_local((pairs,), "float32")
            sine = T.alloc_local((pairs,), "float32")
            for v in T.unroll(vector):
                wide[v] = 0.0
            if index < rows * heads * per_head:
                for v in T.vectorized(vector):
                    x[v] = x_THD[row, head, first + v]
                for v in T.unroll(vector):
                    wide[v] = T.cast(x[v], "float32")
                if first >= plain:
                    for v in T.vectorized(pairs):
                        cosine[v] = cosine_TP[row, (first - plain) // 2 + v]
                    for v in T.vectorized(pairs):
                        sine[v] = sine_TP[row, (first - plain) // 2 + v]
                    for p in T.unroll(pairs):
                        even, odd = turned(
                            T.cast(x[2 * p], "float32"),
                            T.cast(x[2 * p + 1], "float32"),
                            cosine[p],
                            sine[p] * sign,
                        )
                        wide[2 * p] = T.cast(T.cast(even, dtype), "float32")
                        wide[2 * p + 1] = T.cast(T.cast(odd, dtype), "float32")
            rounds(wide)
            if index < rows * heads * per_head:
                for v in T.vectorized(vector):
                    rounded_TX[row, head * width + first + v] = T.cast(wide[v], spec.out_dtype)

    return transform_rope_cast
