"""Sparse attention of rows over listed keys. Twin: ``deepinfer_core.reference.sparse_attention``.

One block for a row and up to 64 heads. It first moves the present slots of each list together, in
order; so absent entries cost nothing, need no mask and change no bit. Keys are then taken in tiles
of a fixed number, source after source: gathered 16 bytes at a time, widened to the dtype of the
products, multiplied, and added to the blend of an online softmax. The last tile of a source is
filled up with its first key, weighing zero. A row's bits depend on its query and on the present
keys of each source in order.

Weights of the softmax are rounded to bf16 for the second product, their sum is not.
"""

import math
from dataclasses import dataclass
from typing import Any

import tilelang.language as T

from deepinfer_core.interfaces.operators.attention import KeySourceSpec, SparseAttentionSpec
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["Tuning", "build"]

_LOG2_E = 1.4426950408889634
_LN_2 = 0.6931471805599453

_NO_BOUNDS_CHECKS = (("tl.disable_safe_memory_legalize", True),)
"""They would break up the 16-byte copies; every index of this kernel is in range by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(KernelTuning):
    """Tiles.

    Attributes:
        keys: keys in a tile, a multiple of 16.
        stages: tiles in flight.
    """

    threads: int = 256
    pass_configs: tuple[tuple[str, bool | int | str], ...] = _NO_BOUNDS_CHECKS
    keys: int = 64
    stages: int = 2


_WIDE_KEYS = 16
"""Keys in a tile of fp32 products."""

_LOWEST = -3.4028234663852886e38

# By format: dtype of the data view, values in an element, channels that share a scale.
_LAYOUTS = {
    "mxfp8": ("float8_e4m3fn", 1, 32),
    "fp4_e4m3x16": ("uint8", 2, 16),
    "bfloat16": ("bfloat16", 1, 0),
    "float32": ("float32", 1, 0),
}
_ITEM_BYTES = {"float8_e4m3fn": 1, "uint8": 1, "bfloat16": 2, "float32": 4}


def build(spec: SparseAttentionSpec, tuning: Tuning) -> Any:
    """Attention over one or two sources."""
    rows = T.dynamic("rows")
    heads, width, threads = spec.heads, spec.head_width, tuning.threads
    is_wide = spec.compute == "float32" or any(s.number_format == "float32" for s in spec.sources)
    tile_heads = 16 if is_wide else min(64, max(16, 1 << (heads - 1).bit_length()))
    product = "float32" if is_wide else "bfloat16"
    keys = _WIDE_KEYS if is_wide else tuning.keys
    capacity = max(source.list_capacity for source in spec.sources)
    attend_source = _source_macro(spec, tuning, product, tile_heads, keys)
    blocks = (rows, -(-heads // tile_heads))
    names = ("pages", "stride", "elements", "bytes_stride", "bytes", "length", "list_stride")

    def views(number: int) -> tuple[Any, Any, Any]:
        source = spec.sources[number]
        pages, stride, elements, bytes_stride, size, length, list_stride = (
            T.dynamic(f"{name}_{number}") for name in names
        )
        return (
            T.StridedTensor((pages, elements), (stride, 1), _LAYOUTS[source.number_format][0]),
            T.StridedTensor((pages, size), (bytes_stride, 1), "uint8"),
            T.StridedTensor((rows, length), (list_stride, 1), "int64"),
        )

    @T.macro
    def attend(q_TND, sources, sink_N, out_TND, lse_TN):
        with T.Kernel(*blocks, threads=threads) as (row, head_block):
            q_s = T.alloc_shared((tile_heads, width), product)
            blend = T.alloc_fragment((tile_heads, width), "float32")
            largest = T.alloc_fragment((tile_heads,), "float32")
            total = T.alloc_fragment((tile_heads,), "float32")
            slot_s = T.alloc_shared((capacity,), "int32")
            place_s = T.alloc_shared((capacity,), "int32")
            first = head_block * tile_heads
            for h, d in T.Parallel(tile_heads, width):
                q_s[h, d] = T.if_then_else(
                    first + h < heads, T.cast(q_TND[row, first + h, d], product), 0
                )
            T.clear(blend)
            T.clear(total)
            T.fill(largest, _LOWEST)
            for number, source in enumerate(sources):
                attend_source(number, *source, row, q_s, blend, largest, total, slot_s, place_s)
            for h in T.Parallel(tile_heads):
                if first + h < heads:
                    lse_TN[row, first + h] = T.if_then_else(
                        total[h] == 0, T.infinity("float32"), largest[h] * _LN_2 + T.log(total[h])
                    )
                    total[h] = T.if_then_else(
                        total[h] == 0,
                        1,
                        total[h] + T.exp2(sink_N[first + h] * _LOG2_E - largest[h]),
                    )
            for h, d in T.Parallel(tile_heads, width):
                if first + h < heads:
                    out_TND[row, first + h, d] = T.cast(blend[h, d] / total[h], spec.compute)

    # Every argument needs a buffer of its own: two names for one would be one argument.
    q, out = (T.Tensor((rows, heads, width), spec.compute) for _ in range(2))
    lse = T.Tensor((rows, heads), "float32")
    sink = T.Tensor((heads,), "float32")
    data_0, scale_0, slot_0 = views(0)
    if len(spec.sources) == 1:

        @T.prim_func
        def attention_sparse(
            q_TND: q,
            data_0_PE: data_0,
            scale_0_PB: scale_0,
            slot_0_TL: slot_0,
            sink_N: sink,
            out_TND: out,
            lse_TN: lse,
        ) -> None:
            attend(q_TND, ((data_0_PE, scale_0_PB, slot_0_TL),), sink_N, out_TND, lse_TN)

        return attention_sparse
    data_1, scale_1, slot_1 = views(1)

    @T.prim_func
    def attention_sparse(
        q_TND: q,
        data_0_PE: data_0,
        scale_0_PB: scale_0,
        slot_0_TL: slot_0,
        data_1_PE: data_1,
        scale_1_PB: scale_1,
        slot_1_TL: slot_1,
        sink_N: sink,
        out_TND: out,
        lse_TN: lse,
    ) -> None:
        attend(
            q_TND,
            ((data_0_PE, scale_0_PB, slot_0_TL), (data_1_PE, scale_1_PB, slot_1_TL)),
            sink_N,
            out_TND,
            lse_TN,
        )

    return attention_sparse


def _source_macro(spec, tuning, product, tile_heads, keys):
    width = spec.head_width
    factor = spec.scale * _LOG2_E
    is_wide = product == "float32"

    @T.macro
    def list_keys(form, row, slot_TL, slot_s, place_s, page_s, line_s):
        length = form.list_capacity
        for i in T.Parallel(length):
            slot_s[i] = T.if_then_else(i < slot_TL.shape[1], T.cast(slot_TL[row, i], "int32"), -1)
        for i in T.Parallel(length):
            place_s[i] = T.if_then_else(slot_s[i] >= 0, 1, 0)
        T.cumsum(place_s[0:length])
        for i in T.Parallel(length):
            if slot_s[i] >= 0:
                page_s[place_s[i] - 1] = (
                    slot_s[i] // form.rows_per_page if form.rows_per_page else 0
                )
                line_s[place_s[i] - 1] = (
                    slot_s[i] % form.rows_per_page if form.rows_per_page else slot_s[i]
                )

    @T.macro
    def attend_tile(tile, count, q_s, key_s, blend, largest, total, weight_s, score, before, part):
        T.clear(score)
        if is_wide:
            for d in T.serial(width):
                for h, k in T.Parallel(tile_heads, keys):
                    score[h, k] += q_s[h, d] * key_s[k, d]
        else:
            T.gemm(q_s, key_s, score, transpose_B=True)
        for h, k in T.Parallel(tile_heads, keys):
            score[h, k] = T.if_then_else(
                tile * keys + k < count, score[h, k] * factor, -T.infinity("float32")
            )
        T.copy(largest, before)
        T.reduce_max(score, largest, dim=1, clear=False)
        for h in T.Parallel(tile_heads):
            before[h] = T.exp2(before[h] - largest[h])
        for h, k in T.Parallel(tile_heads, keys):
            score[h, k] = T.exp2(score[h, k] - largest[h])
        T.reduce_sum(score, part, dim=1)
        for h in T.Parallel(tile_heads):
            total[h] = total[h] * before[h] + part[h]
        T.copy(score, weight_s)
        for h, d in T.Parallel(tile_heads, width):
            blend[h, d] *= before[h]
        if is_wide:
            for k in T.serial(keys):
                for h, d in T.Parallel(tile_heads, width):
                    blend[h, d] += weight_s[h, k] * key_s[k, d]
        else:
            T.gemm(weight_s, key_s, blend)

    @T.macro
    def gather(tile, count, page_s, line_s, from_PE, offset, stride, to):
        for k, e in T.Parallel(keys, to.shape[1]):
            at = T.min(tile * keys + k, count - 1)
            to[k, e] = from_PE[T.cast(page_s[at], "int64"), line_s[at] * stride + offset + e]

    @T.macro
    def widen(raw, scale_s, group, packed, key_s):
        if packed == 1:
            for k, g, d in T.Parallel(keys, width // group, group):
                key_s[k, g * group + d] = T.cast(
                    T.cast(raw[k, g * group + d], "float32") * scale_s[k, g], product
                )
        else:
            for k, g, e in T.Parallel(keys, width // group, group // 2):
                byte = raw[k, g * (group // 2) + e]
                at = g * group + 2 * e
                key_s[k, at] = T.cast(_e2m1(byte & 15) * scale_s[k, g], product)
                key_s[k, at + 1] = T.cast(_e2m1(byte >> 4) * scale_s[k, g], product)

    @T.macro
    def attend_source(
        number, data_PE, scale_PB, slot_TL, row, q_s, blend, largest, total, slot_s, place_s
    ):
        form = spec.sources[number]
        element, packed, group = _LAYOUTS[form.number_format]
        elements = width // packed
        stride = elements + (width // group if group else 0)
        alignment = math.gcd(16, stride * _ITEM_BYTES[element]) // _ITEM_BYTES[element]
        T.assume(data_PE.strides[0] % alignment == 0)
        T.assume(scale_PB.strides[0] % alignment == 0)
        page_s = T.alloc_shared((form.list_capacity,), "int32")
        line_s = T.alloc_shared((form.list_capacity,), "int32")
        key_s = T.alloc_shared((keys, width), product)
        weight_s = T.alloc_shared((tile_heads, keys), product)
        score = T.alloc_fragment((tile_heads, keys), "float32")
        before = T.alloc_fragment((tile_heads,), "float32")
        part = T.alloc_fragment((tile_heads,), "float32")
        count = T.alloc_var("int32")
        list_keys(form, row, slot_TL, slot_s, place_s, page_s, line_s)
        count = place_s[form.list_capacity - 1]
        if group:
            groups = width // group
            raw = T.alloc_fragment((keys, elements), element)
            raw_scale = T.alloc_fragment((keys, groups), "uint8")
            scale_s = T.alloc_shared((keys, groups), "float32")
            if count > 0:
                gather(0, count, page_s, line_s, data_PE, 0, stride, raw)
                gather(0, count, page_s, line_s, scale_PB, elements, stride, raw_scale)
            for tile in T.serial(T.ceildiv(count, keys)):
                for k, g in T.Parallel(keys, groups):
                    scale_s[k, g] = _scale_value(raw_scale[k, g], form.number_format)
                widen(raw, scale_s, group, packed, key_s)
                gather(tile + 1, count, page_s, line_s, data_PE, 0, stride, raw)
                gather(tile + 1, count, page_s, line_s, scale_PB, elements, stride, raw_scale)
                attend_tile(
                    tile, count, q_s, key_s, blend, largest, total, weight_s, score, before, part
                )
        elif tuning.stages == 0:
            raw = T.alloc_fragment((keys, elements), element)
            if count > 0:
                gather(0, count, page_s, line_s, data_PE, 0, stride, raw)
            for tile in T.serial(T.ceildiv(count, keys)):
                T.copy(raw, key_s)
                gather(tile + 1, count, page_s, line_s, data_PE, 0, stride, raw)
                attend_tile(
                    tile, count, q_s, key_s, blend, largest, total, weight_s, score, before, part
                )
        else:
            for tile in T.Pipelined(T.ceildiv(count, keys), num_stages=tuning.stages):
                gather(tile, count, page_s, line_s, data_PE, 0, stride, key_s)
                attend_tile(
                    tile, count, q_s, key_s, blend, largest, total, weight_s, score, before, part
                )

    return attend_source


def _scale_value(byte, number_format):
    if number_format == "fp4_e4m3x16":
        return T.cast(T.reinterpret(byte, "float8_e4m3fn"), "float32")
    bits = T.cast(byte, "uint32") << 23
    smallest, nan = T.uint32(0x00400000), T.uint32(0x7FC00000)
    bits = T.if_then_else(byte == 0, smallest, T.if_then_else(byte == 255, nan, bits))
    return T.reinterpret(bits, "float32")


def _e2m1(code):
    doubled = (T.uint32(0xC8643210) >> (T.cast(code & 7, "uint32") * 4)) & 15
    value = T.cast(doubled, "float32") * 0.5
    return T.if_then_else(code < 8, value, -value)
