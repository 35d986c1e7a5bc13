"""Mixing of streams, and the norm of their weighted sum. Twin: ``interfaces.transform``.

``expand_norm`` there. One block a row. Streams and their sum have the bits of
``transform_mhc_expand`` and ``transform_mhc_collapse``. A thread reads its channels of all streams
before it writes any, so the result may replace the trunk. The sum lies in shared memory, and then
its norm in the same place, as in ``transform_collapse_norm``.
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
    rows, streams, width, dtype = T.dynamic("rows"), spec.streams, spec.width, spec.dtype
    expand = _expand(spec, tuning)
    norm = norm_kept(width, tuning.threads, dtype, spec.eps)

    @T.prim_func
    def transform_expand_norm(
        trunk_TSD: T.Tensor((rows, streams, width), dtype),
        y_TD: T.Tensor((rows, width), dtype),
        post_TS: T.Tensor((rows, streams), "float32"),
        comb_TSS: T.Tensor((rows, streams, streams), "float32"),
        pre_TS: T.Tensor((rows, streams), "float32"),
        weight_D: T.Tensor((width,), spec.weight_dtype),
        out_TSD: T.Tensor((rows, streams, width), dtype),
        normed_TD: T.Tensor((rows, width), dtype),
    ) -> None:
        with T.Kernel(rows, threads=tuning.threads) as row:
            let_next_start(rows)
            T.pdl_sync()
            kept = T.alloc_shared((width,), dtype)
            expand(trunk_TSD, y_TD, post_TS, comb_TSS, pre_TS, out_TSD, kept, row)
            norm(weight_D, kept, normed_TD, row)

    return transform_expand_norm


def _rounded(spec: CollapseNormSpec, tuning: KernelTuning) -> Any:
    rows, streams, width, dtype = T.dynamic("rows"), spec.streams, spec.width, spec.dtype
    assert spec.number_format is not None
    expand = _expand(spec, tuning)
    norm = norm_kept(width, tuning.threads, dtype, spec.eps)
    to_rounded = round_row(width, tuning.threads, dtype, spec.number_format)

    @T.prim_func
    def transform_expand_norm(
        trunk_TSD: T.Tensor((rows, streams, width), dtype),
        y_TD: T.Tensor((rows, width), dtype),
        post_TS: T.Tensor((rows, streams), "float32"),
        comb_TSS: T.Tensor((rows, streams, streams), "float32"),
        pre_TS: T.Tensor((rows, streams), "float32"),
        weight_D: T.Tensor((width,), spec.weight_dtype),
        out_TSD: T.Tensor((rows, streams, width), dtype),
        normed_TD: T.Tensor((rows, width), dtype),
        rounded_TD: T.Tensor((rows, width), "bfloat16"),
    ) -> None:
        with T.Kernel(rows, threads=tuning.threads) as row:
            let_next_start(rows)
            T.pdl_sync()
            kept = T.alloc_shared((width,), dtype)
            expand(trunk_TSD, y_TD, post_TS, comb_TSS, pre_TS, out_TSD, kept, row)
            norm(weight_D, kept, normed_TD, row)
            to_rounded(kept, rounded_TD, row)

    return transform_expand_norm


def _expand(spec: CollapseNormSpec, tuning: KernelTuning) -> Any:
    """A macro that mixes the streams of a row, and leaves their sum in shared memory."""
    streams, width, dtype = spec.streams, spec.width, spec.dtype
    vector = math.gcd(ACCESS_BYTES // ELEMENT_BYTES[dtype], width)
    vectors = width // vector
    trips = -(-vectors // tuning.threads)

    @T.macro
    def expand(
        trunk_TSD: Any,
        y_TD: Any,
        post_TS: Any,
        comb_TSS: Any,
        pre_TS: Any,
        out_TSD: Any,
        kept: Any,
        row: Any,
    ) -> None:
        h = T.alloc_local((trips, streams, vector), dtype)
        y = T.alloc_local((trips, vector), dtype)
        out = T.alloc_local((streams, vector), dtype)
        # All of a row is asked for before any of it is written: results may lie where it lay.
        for trip in T.unroll(trips):
            index = trip * tuning.threads + T.get_thread_binding()
            if index < vectors:
                for v in T.vectorized(vector):
                    y[trip, v] = y_TD[row, index * vector + v]
                for s in T.unroll(streams):
                    for v in T.vectorized(vector):
                        h[trip, s, v] = trunk_TSD[row, s, index * vector + v]
        for trip in T.unroll(trips):
            index = trip * tuning.threads + T.get_thread_binding()
            if index < vectors:
                for n in T.unroll(streams):
                    for v in T.unroll(vector):
                        total = weighted_sum(
                            [post_TS[row, n], *[comb_TSS[row, m, n] for m in range(streams)]],
                            [y[trip, v], *[h[trip, m, v] for m in range(streams)]],
                        )
                        out[n, v] = T.cast(total, dtype)
                for n in T.unroll(streams):
                    for v in T.vectorized(vector):
                        out_TSD[row, n, index * vector + v] = out[n, v]
                for v in T.unroll(vector):
                    collapsed = weighted_sum(
                        [pre_TS[row, s] for s in range(streams)],
                        [out[s, v] for s in range(streams)],
                    )
                    kept[index * vector + v] = T.cast(collapsed, dtype)

    return expand
