"""How does a block norm a row that it keeps? Parts of kernels that do more with it.

As ``transform_rms_norm`` does it: squares are summed in fp32 in an order that the width and the
threads fix.
"""

from typing import Any

import tilelang.language as T

from deepinfer_nvidia.kernels.block_rounding import round_groups
from deepinfer_nvidia.kernels.tuning import KernelTuning
from deepinfer_nvidia.kernels.vectors import ACCESS_BYTES, ELEMENT_BYTES, row_threads

__all__ = ["norm_kept", "norm_row", "norm_tuning", "padded_width", "round_row"]


def norm_tuning(width: int, dtype: str) -> KernelTuning:
    """One warp for narrow rows, more for wide ones."""
    vectors = width * ELEMENT_BYTES[dtype] // ACCESS_BYTES
    for threads in (256, 128):
        if vectors >= threads:
            return KernelTuning(threads=threads)
    return KernelTuning(threads=row_threads(width, dtype))


def padded_width(width: int, threads: int) -> int:
    """Channels of a row and of its padding, which all threads share evenly."""
    return -(-width // threads) * threads


def norm_row(width: int, threads: int, dtype: str, eps: float) -> Any:
    """A macro from a row in a fragment [1, padded], zero behind the width, to shared memory [D].

    The threads must be a power of two.
    """
    padded = padded_width(width, threads)

    @T.macro
    def norm(x: Any, weight_D: Any, normed: Any) -> None:
        square = T.alloc_fragment((1, padded), "float32")
        total = T.alloc_fragment((1,), "float32")
        for i, j in T.Parallel(1, padded):
            square[i, j] = T.cast(x[i, j], "float32") * T.cast(x[i, j], "float32")
        T.reduce_sum(square, total, dim=1)
        for i, j in T.Parallel(1, padded):
            if j < width:
                value = T.cast(x[i, j], "float32") * T.rsqrt(total[i] / width + eps)
                normed[j] = T.cast(value * T.cast(weight_D[j], "float32"), dtype)

    return norm


def norm_kept(width: int, threads: int, dtype: str, eps: float) -> Any:
    """A macro that norms a row in shared memory [D] where it is, and writes it to row ``row``."""
    padded = padded_width(width, threads)
    norm = norm_row(width, threads, dtype, eps)

    @T.macro
    def norm_in_place(weight_D: Any, kept: Any, out_TD: Any, row: Any) -> None:
        x = T.alloc_fragment((1, padded), dtype)
        for i, j in T.Parallel(1, padded):
            x[i, j] = T.if_then_else(j < width, kept[j], T.cast(0, dtype))
        norm(x, weight_D, kept)
        for j in T.Parallel(width):
            out_TD[row, j] = kept[j]

    return norm_in_place


def round_row(width: int, threads: int, dtype: str, number_format: str) -> Any:
    """A macro from a row in shared memory [D] to its rounded numbers, bfloat16, in row ``row``."""
    vector = ACCESS_BYTES // ELEMENT_BYTES[dtype]
    vectors = width // vector
    rounds = round_groups(number_format, vector)

    @T.macro
    def to_rounded(normed: Any, rounded_TD: Any, row: Any) -> None:
        x = T.alloc_local((vector,), "float32")
        for trip in T.unroll(-(-vectors // threads)):
            index = trip * threads + T.get_thread_binding()
            for v in T.unroll(vector):
                x[v] = 0.0
            if index < vectors:
                for v in T.unroll(vector):
                    x[v] = T.cast(normed[index * vector + v], "float32")
            rounds(x)
            if index < vectors:
                for v in T.vectorized(vector):
                    rounded_TD[row, index * vector + v] = T.cast(x[v], "bfloat16")

    return to_rounded
