"""Rotary positions. Twin: ``deepinfer_core.reference.transform``, ``rope``, with the same bits.

A thread turns vectors of neighbouring channels, whole pairs: the same channels of several heads, so
that it reads their angle once and all of the vectors together. It reads a vector before it writes
it, so the result may replace the input. Products are rounded before they are added: a contracted
multiply-add would give other bits.
"""

from math import gcd
from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.transform import RopeSpec

from deepinfer_nvidia.kernels.vectors import VectorTuning, vector_tuning

__all__ = ["build", "default_tuning"]

_MOST_HEADS = 4


def default_tuning(spec: RopeSpec) -> VectorTuning:
    """Vectors of whole pairs, of up to four heads."""
    plain = spec.width - 2 * spec.pairs
    strides = (*spec.strides, *spec.out_strides)
    heads = gcd(spec.heads, _MOST_HEADS)
    return vector_tuning(spec.dtype, plain, 2 * spec.pairs, *strides, smallest=2, vectors=heads)


def build(spec: RopeSpec, tuning: VectorTuning) -> Any:
    """Heads of ``spec.width`` channels.

    ``tuning.vector`` divides the plain and the turned ones, ``tuning.vectors`` the heads.
    """
    rows = T.dynamic("rows")
    heads, width, dtype, vector = spec.heads, spec.width, spec.dtype, tuning.vector
    pairs, plain = vector // 2, spec.width - 2 * spec.pairs
    start = plain if spec.is_in_place else 0
    per_head = (width - start) // vector
    # Heads of a thread lie so far apart.
    apart = heads // tuning.vectors
    per_row = apart * per_head
    sign = -1.0 if spec.is_inverse else 1.0
    turn = _turn(pairs, dtype)

    @T.prim_func
    def transform_rope(
        x_THD: T.StridedTensor((rows, heads, width), (*spec.strides, 1), dtype),
        cosine_TP: T.Tensor((rows, spec.pairs), "float32"),
        sine_TP: T.Tensor((rows, spec.pairs), "float32"),
        out_THD: T.StridedTensor((rows, heads, width), (*spec.out_strides, 1), dtype),
    ) -> None:
        with T.Kernel(T.ceildiv(rows * per_row, tuning.threads), threads=tuning.threads) as block:
            x = T.alloc_local((tuning.vectors * vector,), dtype)
            cosine = T.alloc_local((pairs,), "float32")
            sine = T.alloc_local((pairs,), "float32")
            index = block * tuning.threads + T.get_thread_binding()
            row = index // per_row
            head = index // per_head % apart
            first = start + index % per_head * vector
            if index < rows * per_row:
                for h in T.unroll(tuning.vectors):
                    for v in T.vectorized(vector):
                        x[h * vector + v] = x_THD[row, h * apart + head, first + v]
                if first >= plain:
                    for v in T.vectorized(pairs):
                        cosine[v] = cosine_TP[row, (first - plain) // 2 + v]
                    for v in T.vectorized(pairs):
                        sine[v] = sine_TP[row, (first - plain) // 2 + v]
                    for p in T.unroll(pairs):
                        sine[p] = sine[p] * sign
                    for h in T.unroll(tuning.vectors):
                        turn(x, h * vector, cosine, sine)
                for h in T.unroll(tuning.vectors):
                    for v in T.vectorized(vector):
                        out_THD[row, h * apart + head, first + v] = x[h * vector + v]

    return transform_rope


def _turn(pairs: int, dtype: str) -> Any:
    @T.macro
    def turn(x: Any, start: Any, cosine: Any, sine: Any) -> None:
        """Turn the pairs of a vector that starts there."""
        for p in T.unroll(pairs):
            even = T.cast(x[start + 2 * p], "float32")
            odd = T.cast(x[start + 2 * p + 1], "float32")
            x[start + 2 * p] = T.cast(
                T.ieee_sub(T.ieee_mul(even, cosine[p]), T.ieee_mul(odd, sine[p])), dtype
            )
            x[start + 2 * p + 1] = T.cast(
                T.ieee_add(T.ieee_mul(even, sine[p]), T.ieee_mul(odd, cosine[p])), dtype
            )

    return turn
