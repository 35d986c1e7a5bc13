"""RMS norm of rows, and rotary positions. Twin: ``interfaces.transform``, ``norm_rope``.

One block a row, which is one head. The norm is rounded to the dtype of rows and lies in shared
memory before its last channels turn.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.transform_runs import NormRopeSpec

from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.rotation import turned
from deepinfer_nvidia.kernels.row_norm import norm_row, norm_tuning, padded_width
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["build", "default_tuning"]


def default_tuning(spec: NormRopeSpec) -> KernelTuning:
    """As for the norm alone, with its order of a sum."""
    return norm_tuning(spec.width, spec.dtype)


def build(spec: NormRopeSpec, tuning: KernelTuning) -> Any:
    """Rows of ``spec.width`` channels; the threads must be a power of two."""
    return _both(spec, tuning) if spec.keeps_normed else _turned_only(spec, tuning)


def _turned_only(spec: NormRopeSpec, tuning: KernelTuning) -> Any:
    rows, width, dtype = T.dynamic("rows"), spec.width, spec.dtype
    norm_turn = _norm_turn(spec, tuning)

    @T.prim_func
    def transform_norm_rope(
        x_TD: T.StridedTensor((rows, width), (spec.row_stride, 1), dtype),
        weight_D: T.Tensor((width,), spec.weight_dtype),
        cosine_TP: T.Tensor((rows, spec.pairs), "float32"),
        sine_TP: T.Tensor((rows, spec.pairs), "float32"),
        out_TD: T.Tensor((rows, width), dtype),
    ) -> None:
        with T.Kernel(rows, threads=tuning.threads) as row:
            let_next_start(rows)
            T.pdl_sync()
            normed = T.alloc_shared((width,), dtype)
            norm_turn(x_TD, weight_D, cosine_TP, sine_TP, normed, out_TD, row)

    return transform_norm_rope


def _both(spec: NormRopeSpec, tuning: KernelTuning) -> Any:
    rows, width, dtype = T.dynamic("rows"), spec.width, spec.dtype
    norm_turn = _norm_turn(spec, tuning)

    @T.prim_func
    def transform_norm_rope(
        x_TD: T.StridedTensor((rows, width), (spec.row_stride, 1), dtype),
        weight_D: T.Tensor((width,), spec.weight_dtype),
        cosine_TP: T.Tensor((rows, spec.pairs), "float32"),
        sine_TP: T.Tensor((rows, spec.pairs), "float32"),
        normed_TD: T.Tensor((rows, width), dtype),
        out_TD: T.Tensor((rows, width), dtype),
    ) -> None:
        with T.Kernel(rows, threads=tuning.threads) as row:
            let_next_start(rows)
            T.pdl_sync()
            normed = T.alloc_shared((width,), dtype)
            norm_turn(x_TD, weight_D, cosine_TP, sine_TP, normed, out_TD, row)
            for j in T.Parallel(width):
                normed_TD[row, j] = normed[j]

    return transform_norm_rope


def _norm_turn(spec: NormRopeSpec, tuning: KernelTuning) -> Any:
    """What both variants do with one row, as a macro."""
    width, dtype, pairs = spec.width, spec.dtype, spec.pairs
    plain = width - 2 * pairs
    padded = padded_width(width, tuning.threads)
    norm = norm_row(width, tuning.threads, dtype, spec.eps)

    @T.macro
    def norm_turn(
        x_TD: Any,
        weight_D: Any,
        cosine_TP: Any,
        sine_TP: Any,
        normed: Any,
        out_TD: Any,
        row: Any,
    ) -> None:
        x = T.alloc_fragment((1, padded), dtype)
        for i, j in T.Parallel(1, padded):
            x[i, j] = T.if_then_else(j < width, x_TD[row + i, j], T.cast(0, dtype))
        norm(x, weight_D, normed)
        if plain:
            for j in T.Parallel(plain):
                out_TD[row, j] = normed[j]
        for p in T.Parallel(pairs):
            even, odd = turned(
                T.cast(normed[plain + 2 * p], "float32"),
                T.cast(normed[plain + 2 * p + 1], "float32"),
                cosine_TP[row, p],
                sine_TP[row, p],
            )
            out_TD[row, plain + 2 * p] = T.cast(even, dtype)
            out_TD[row, plain + 2 * p + 1] = T.cast(odd, dtype)

    return norm_turn
