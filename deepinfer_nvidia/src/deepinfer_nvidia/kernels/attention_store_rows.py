"""Encode rows into cache pages. Twin: ``deepinfer_core.reference.cache_codec``, ``store``.

A thread encodes the channels that share a scale, all by itself: it takes them into registers in
vectors, finds the largest magnitude, and writes the codes in vectors. Threads of rows without a
slot do nothing.
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

_SMALLEST = {"mxfp8": 1e-4, "mxfp4": 6 * 2.0**-126, "fp4_e4m3x16": 6 * 2.0**-9}
_LARGEST_CODE = {"mxfp8": 448.0, "mxfp4": 6.0, "fp4_e4m3x16": 6.0}


def default_tuning(spec: RowsSpec) -> KernelTuning:
    """Small blocks: rows are few in a step that decodes."""
    return KernelTuning(threads=128, pass_configs=NO_BOUNDS_CHECKS)


def build(spec: RowsSpec, tuning: KernelTuning) -> Any:
    """The kernel of one format."""
    form = spec.pages.number_format
    if form == "mxfp8":
        return _mxfp8(spec, tuning)
    if form in ("mxfp4", "fp4_e4m3x16"):
        return _four_bits(spec, tuning)
    return _plain(spec, tuning)


def _scale_argument(amax: Any, form: str) -> Any:
    """What the scale is made from: amax, an fp32 number that is not NaN, over the largest code."""
    smallest = T.float32(_SMALLEST[form])
    return T.max(amax, smallest) * T.float32(1 / _LARGEST_CODE[form])


def _mxfp8(spec: RowsSpec, tuning: KernelTuning) -> Any:
    rows, page_count = T.dynamic("rows"), T.dynamic("pages")
    pages, width, group = spec.pages, spec.pages.width, 32
    groups = width // group
    read, write = _vectors(spec, group, 1)

    @T.prim_func
    def attention_store_rows(
        x_TD: T.Tensor((rows, width), spec.dtype),
        slot_T: T.Tensor((rows,), "int64"),
        data_PRX: T.StridedTensor(
            (page_count, pages.rows_per_page, width), (*pages.data_strides, 1), "float8_e4m3fn"
        ),
        scale_PRG: T.StridedTensor(
            (page_count, pages.rows_per_page, groups), (*pages.scale_strides, 1), "uint8"
        ),
    ) -> None:
        with T.Kernel(T.ceildiv(rows * groups, tuning.threads), threads=tuning.threads) as block:
            let_next_start(rows)
            T.pdl_sync()
            row = (block * tuning.threads + T.get_thread_binding()) // groups
            number = (block * tuning.threads + T.get_thread_binding()) % groups
            x = T.alloc_local((group,), spec.dtype)
            code = T.alloc_local((group,), "float8_e4m3fn")
            amax = T.alloc_var("int32")
            byte = T.alloc_var("int32")
            slot = T.alloc_var("int32")
            if row < rows:
                slot = T.cast(slot_T[row], "int32")
                if slot >= 0:
                    page = T.cast(slot // pages.rows_per_page, "int64")
                    place = slot % pages.rows_per_page
                    for i in T.unroll(group // read):
                        for j in T.vectorized(read):
                            x[i * read + j] = x_TD[row, number * group + i * read + j]
                    amax = 0
                    for j in T.unroll(group):
                        bits = codes.magnitude_bits(T.cast(x[j], "float32"))
                        amax = T.max(amax, T.if_then_else(bits > codes.INFINITY_BITS, 0, bits))
                    finite = T.reinterpret(T.min(amax, codes.LARGEST_BITS), "float32")
                    byte = codes.ceil_log2_byte(_scale_argument(finite, "mxfp8"))
                    scale_PRG[page, place, number] = T.cast(byte, "uint8")
                    for j in T.unroll(group):
                        code[j] = T.cast(
                            T.cast(x[j], "float32") * codes.reciprocal_of_byte(byte),
                            "float8_e4m3fn",
                        )
                    for i in T.unroll(group // write):
                        for j in T.vectorized(write):
                            data_PRX[page, place, number * group + i * write + j] = code[
                                i * write + j
                            ]

    return attention_store_rows


def _four_bits(spec: RowsSpec, tuning: KernelTuning) -> Any:
    rows, page_count = T.dynamic("rows"), T.dynamic("pages")
    pages, width, form = spec.pages, spec.pages.width, spec.pages.number_format
    has_power_scale = form == "mxfp4"
    group = 32 if has_power_scale else 16
    groups = width // group
    scale_dtype = "uint8" if has_power_scale else "float8_e4m3fn"
    read, write = _vectors(spec, group, 2)

    @T.prim_func
    def attention_store_rows(
        x_TD: T.Tensor((rows, width), spec.dtype),
        slot_T: T.Tensor((rows,), "int64"),
        data_PRX: T.StridedTensor(
            (page_count, pages.rows_per_page, width // 2), (*pages.data_strides, 1), "uint8"
        ),
        scale_PRG: T.StridedTensor(
            (page_count, pages.rows_per_page, groups), (*pages.scale_strides, 1), scale_dtype
        ),
    ) -> None:
        with T.Kernel(T.ceildiv(rows * groups, tuning.threads), threads=tuning.threads) as block:
            let_next_start(rows)
            T.pdl_sync()
            row = (block * tuning.threads + T.get_thread_binding()) // groups
            number = (block * tuning.threads + T.get_thread_binding()) % groups
            x = T.alloc_local((group,), spec.dtype)
            pair = T.alloc_local((group // 2,), "uint8")
            amax = T.alloc_var("int32")
            byte = T.alloc_var("int32")
            scale = T.alloc_var("float8_e4m3fn")
            factor = T.alloc_var("float32")
            argument = T.alloc_var("float32")
            slot = T.alloc_var("int32")
            if row < rows:
                slot = T.cast(slot_T[row], "int32")
                if slot >= 0:
                    page = T.cast(slot // pages.rows_per_page, "int64")
                    place = slot % pages.rows_per_page
                    for i in T.unroll(group // read):
                        for j in T.vectorized(read):
                            x[i * read + j] = x_TD[row, number * group + i * read + j]
                    amax = 0
                    for j in T.unroll(group):
                        amax = T.max(amax, codes.magnitude_bits(T.cast(x[j], "float32")))
                    finite = T.reinterpret(T.min(amax, codes.LARGEST_BITS), "float32")
                    argument = _scale_argument(finite, form)
                    if has_power_scale:
                        byte = codes.ceil_log2_byte(argument)
                        factor = codes.reciprocal_of_byte(byte)
                        if amax > codes.INFINITY_BITS:
                            byte = 255
                        scale_PRG[page, place, number] = T.cast(byte, "uint8")
                    else:
                        scale = T.cast(argument, "float8_e4m3fn")
                        factor = T.float32(1) / T.cast(scale, "float32")
                        if amax > codes.INFINITY_BITS:
                            scale = T.cast(
                                T.reinterpret(T.int32(codes.NAN_BITS), "float32"), "float8_e4m3fn"
                            )
                        scale_PRG[page, place, number] = scale
                    if amax > codes.INFINITY_BITS:
                        factor = T.reinterpret(T.int32(codes.NAN_BITS), "float32")
                    for j in T.unroll(group // 2):
                        low = codes.e2m1_code(T.cast(x[2 * j], "float32") * factor)
                        high = codes.e2m1_code(T.cast(x[2 * j + 1], "float32") * factor)
                        pair[j] = T.cast(low | (high << 4), "uint8")
                    for i in T.unroll(group // 2 // write):
                        for j in T.vectorized(write):
                            data_PRX[page, place, number * (group // 2) + i * write + j] = pair[
                                i * write + j
                            ]

    return attention_store_rows


def _plain(spec: RowsSpec, tuning: KernelTuning) -> Any:
    rows, page_count = T.dynamic("rows"), T.dynamic("pages")
    pages, width = spec.pages, spec.pages.width
    group = vector_elements(width, spec.dtype, pages.number_format, alignment=pages.alignment_bytes)
    groups = width // group

    @T.prim_func
    def attention_store_rows(
        x_TD: T.Tensor((rows, width), spec.dtype),
        slot_T: T.Tensor((rows,), "int64"),
        data_PRX: T.StridedTensor(
            (page_count, pages.rows_per_page, width), (*pages.data_strides, 1), pages.number_format
        ),
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
                        data_PRX[page, place, number * group + j] = T.cast(
                            x_TD[row, number * group + j], pages.number_format
                        )

    return attention_store_rows


def _vectors(spec: RowsSpec, group: int, channels_a_byte: int) -> tuple[int, int]:
    """Channels read, and bytes written, by one instruction."""
    read = vector_elements(group, spec.dtype, spec.dtype)
    return read, min(spec.pages.alignment_bytes, group // channels_a_byte)
