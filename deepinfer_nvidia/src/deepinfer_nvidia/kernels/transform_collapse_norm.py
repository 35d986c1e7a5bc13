"""Norm of the weighted sum of streams. Twin: ``interfaces.transform``, ``collapse_norm``.

One block a row. The sum has the bits of ``transform_mhc_collapse``: products are rounded, then
added in the order of the streams. It lies in shared memory, and then its norm in the same place,
before that is written, as it is and rounded.
"""

import math
from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.transform_runs import CollapseNormSpec

from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.row_norm import norm_kept, norm_tuning, round_row
from deepinfer_nvidia.kernels.stream_sums import weighted_sum
from deepinfer_nvidia.kernels.tuning import KernelTuning
from deepinfer_nvidia.kernels.vectors import ACCESS_BYTES, ELEMENT_BYTES

__all__ = ["build", "default_tuning"]


def default_tuning(spec: CollapseNormSpec) -> KernelTuning:
    """As for the norm alone, with its order of a sum."""
    return norm_tuning(spec.width, spec.dtype)


def build(spec: CollapseNormSpec, tuning: KernelTuning) -> Any:
    """Streams of ``spec.width`` channels; the threads must be a power of two."""
    return _plain(spec, tuning) if spec.number_format is None else _rounded(spec, tuning)


def _plain(spec: CollapseNormSpec, tuning: KernelTuning) -> Any:
    rows, width, dtype = T.dynamic("rows"), spec.width, spec.dtype
    collapse_norm = _collapse_norm(spec, tuning)

    @T.prim_func
    def transform_collapse_norm(
        trunk_TSD: T.Tensor((rows, spec.streams, width), dtype),
        pre_TS: T.Tensor((rows, spec.streams), "float32"),
        weight_D: T.Tensor((width,), spec.weight_dtype),
        out_TD: T.Tensor((rows, width), dtype),
    ) -> None:
        with T.Kernel(rows, threads=tuning.threads) as row:
            let_next_start(rows)
            T.pdl_sync()
            normed = T.alloc_shared((width,), dtype)
            collapse_norm(trunk_TSD, pre_TS, weight_D, normed, out_TD, row)

    return transform_collapse_norm


def _rounded(spec: CollapseNormSpec, tuning: KernelTuning) -> Any:
    rows, width, dtype = T.dynamic("rows"), spec.width, spec.dtype
    assert spec.number_format is not None
    collapse_norm = _collapse_norm(spec, tuning)
    to_rounded = round_row(width, tuning.threads, dtype, spec.number_format)

    @T.prim_func
    def transform_collapse_norm(
        trunk_TSD: T.Tensor((rows, spec.streams, width), dtype),
        pre_TS: T.Tensor((rows, spec.streams), "float32"),
        weight_D: T.Tensor((width,), spec.weight_dtype),
        out_TD: T.Tensor((rows, width), dtype),
        rounded_TD: T.Tensor((rows, width), "bfloat16"),
    ) -> None:
        with T.Kernel(rows, threads=tuning.threads) as row:
            let_next_start(rows)
            T.pdl_sync()
            normed = T.alloc_shared((width,), dtype)
            collapse_norm(trunk_TSD, pre_TS, weight_D, normed, out_TD, row)
            to_rounded(normed, rounded_TD, row)

    return transform_collapse_norm


def _collapse_norm(spec: CollapseNormSpec, tuning: KernelTuning) -> Any:
    """What both variants do with one row, as a macro."""
    width, dtype = spec.width, spec.dtype
    norm = norm_kept(width, tuning.threads, dtype, spec.eps)

    vector = math.gcd(ACCESS_BYTES // ELEMENT_BYTES[dtype], width)
    vectors = width // vector

    @T.macro
    def collapse_norm(
        trunk_TSD: Any, pre_TS: Any, weight_D: Any, normed: Any, out_TD: Any, row: Any
    ) -> None:
        h = T.alloc_local((spec.streams, vector), dtype)
        for trip in T.unroll(-(-vectors // tuning.threads)):
            index = trip * tuning.threads + T.get_thread_binding()
            if index < vectors:
                for s in T.unroll(spec.streams):
                    for v in T.vectorized(vector):
                        h[s, v] = trunk_TSD[row, s, index * vector + v]
                for v in T.unroll(vector):
                    total = weighted_sum(
                        [pre_TS[row, s] for s in range(spec.streams)],
                        [h[s, v] for s in range(spec.streams)],
                    )
                    normed[index * vector + v] = T.cast(total, dtype)
        norm(weight_D, normed, out_TD, row)

    return collapse_norm
