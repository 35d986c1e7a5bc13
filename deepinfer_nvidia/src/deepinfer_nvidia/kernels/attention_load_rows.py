"""Decode rows of cache pages. Twin: ``deepinfer_core.reference.cache_codec``, ``load``.

A thread decodes as many channels as it writes at once, so that neighbours read and write side by
side. Rows without a slot are zeros.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.cache import RowsSpec

from deepinfer_nvidia.kernels import number_codes as codes
from deepinfer_nvidia.kernels.compiler_switches import NO_BOUNDS_CHECKS
from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.row_vectors import vector_elements
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["build", "default_tuning"]

_GROUP = {"mxfp8": 32, "mxfp4": 32, "fp4_e4m3x16": 16}


def default_tuning(spec: RowsSpec) -> KernelTuning:
    """Small blocks: rows are few in a step that decodes."""
    return KernelTuning(threads=128, pass_configs=NO_BOUNDS_CHECKS)


def build(spec: RowsSpec, tuning: KernelTuning) -> Any:
    """The kernel of one format."""
    return _scaled(spec, tuning) if spec.pages.number_format in _GROUP else _plain(spec, tuning)


def _scaled(spec: RowsSpec, tuning: KernelTuning) -> Any:
    rows, page_count = T.dynamic("rows"), T.dynamic("pages")
    pages, width, form = spec.pages, spec.pages.width, spec.pages.number_format
    group, is_packed = _GROUP[form], form != "mxfp8"
    chunk = vector_elements(group, spec.dtype)
    chunks, stored = width // chunk, chunk // (2 if is_packed else 1)
    data_dtype = "uint8" if is_packed else "float8_e4m3fn"
    scale_dtype = "float8_e4m3fn" if form == "fp4_e4m3x16" else "uint8"
    read = min(pages.alignment_bytes, stored)

    @T.prim_func
    def attention_load_rows(
        data_PRX: T.StridedTensor(
            (page_count, pages.rows_per_page, chunks * stored),
            (*pages.data_strides, 1),
            data_dtype,
        ),
        scale_PRG: T.StridedTensor(
            (page_count, pages.rows_per_page, width // group),
            (*pages.scale_strides, 1),
            scale_dtype,
        ),
        slot_T: T.Tensor((rows,), "int64"),
        out_TD: T.Tensor((rows, width), spec.dtype),
    ) -> None:
        with T.Kernel(T.ceildiv(rows * chunks, tuning.threads), threads=tuning.threads) as block:
            let_next_start(rows)
            T.pdl_sync()
            row = (block * tuning.threads + T.get_thread_binding()) // chunks
            number = (block * tuning.threads + T.get_thread_binding()) % chunks
            code = T.alloc_local((stored,), data_dtype)
            x = T.alloc_local((chunk,), spec.dtype)
            slot = T.alloc_var("int32")
            factor = T.alloc_var("float32")
            if row < rows:
                slot = T.cast(slot_T[row], "int32")
                if slot >= 0:
                    page = T.cast(slot // pages.rows_per_page, "int64")
                    place = slot % pages.rows_per_page
                    for i in T.unroll(stored // read):
                        for j in T.vectorized(read):
                            code[i * read + j] = data_PRX[
                                page, place, number * stored + i * read + j
                            ]
                    if scale_dtype == "uint8":
                        factor = codes.value_of_byte(
                            T.cast(scale_PRG[page, place, number * chunk // group], "int32")
                        )
                    else:
                        factor = T.cast(scale_PRG[page, place, number * chunk // group], "float32")
                    if is_packed:
                        for j in T.unroll(stored):
                            byte = T.cast(code[j], "int32")
                            x[2 * j] = T.cast(codes.e2m1_value(byte & 15) * factor, spec.dtype)
                            x[2 * j + 1] = T.cast(codes.e2m1_value(byte >> 4) * factor, spec.dtype)
                    else:
                        for j in T.unroll(chunk):
                            x[j] = T.cast(T.cast(code[j], "float32") * factor, spec.dtype)
                else:
                    for j in T.unroll(chunk):
                        x[j] = T.cast(0, spec.dtype)
                for j in T.vectorized(chunk):
                    out_TD[row, number * chunk + j] = x[j]

    return attention_load_rows


def _plain(spec: RowsSpec, tuning: KernelTuning) -> Any:
    rows, page_count = T.dynamic("rows"), T.dynamic("pages")
    pages, width = spec.pages, spec.pages.width
    group = vector_elements(width, spec.dtype, pages.number_format, alignment=pages.alignment_bytes)
    groups = width // group

    @T.prim_func
    def attention_load_rows(
        data_PRX: T.StridedTensor(
            (page_count, pages.rows_per_page, width), (*pages.data_strides, 1), pages.number_format
        ),
        slot_T: T.Tensor((rows,), "int64"),
        out_TD: T.Tensor((rows, width), spec.dtype),
    ) -> None:
        with T.Kernel(T.ceildiv(rows * groups, tuning.threads), threads=tuning.threads) as block:
            let_next_start(rows)
            T.pdl_sync()
            row = (block * tuning.threads + T.get_thread_binding()) // groups
            number = (block * tuning.threads + T.get_thread_binding()) % groups
            slot = T.alloc_var("int32")
            if row < rows:
                slot = T.cast(slot_T[row], "int32")
                if slot >= 0:
                    page = T.cast(slot // pages.rows_per_page, "int64")
                    place = slot % pages.rows_per_page
                    for j in T.vectorized(group):
                        out_TD[row, number * group + j] = T.cast(
                            data_PRX[page, place, number * group + j], spec.dtype
                        )
                else:
                    for j in T.vectorized(group):
                        out_TD[row, number * group + j] = T.cast(0, spec.dtype)

    return attention_load_rows
