"""How do attention kernels find, gather and widen the keys that a row lists?

Parts of kernels, not kernels: each function gives a macro for one source of keys.
"""

import math
from dataclasses import dataclass
from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.attention import KeySourceSpec

__all__ = ["KeyRows", "gatherer", "key_rows", "lister", "widener"]

# By format: dtype of the data view, values in an element, channels that share a scale.
_LAYOUTS = {
    "mxfp8": ("float8_e4m3fn", 1, 32),
    "fp4_e4m3x16": ("uint8", 2, 16),
    "bfloat16": ("bfloat16", 1, 0),
    "float32": ("float32", 1, 0),
}
_ITEM_BYTES = {"float8_e4m3fn": 1, "uint8": 1, "bfloat16": 2, "float32": 4}
_VECTOR_BYTES = 16
_ROW_BITS = 0xFFFFFFFF

_E2M1_DOUBLED = 0xC8643210
"""Magnitudes of e2m1, doubled, four bits each; code 0 in the lowest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRows:
    """Where the parts of a row lie in a page.

    Attributes:
        element: dtype of the data view.
        packed: values in an element.
        group: channels that share a scale; 0 if there are no scales.
        elements: elements of the data of a row.
        stride: elements from row to row; the same number of bytes where there are scales.
        alignment: what strides between pages are multiples of, in elements.
    """

    element: str
    packed: int
    group: int
    elements: int
    stride: int
    alignment: int


def key_rows(number_format: str, width: int) -> KeyRows:
    """The rows of one format."""
    element, packed, group = _LAYOUTS[number_format]
    elements = width // packed
    stride = elements + (width // group if group else 0)
    item = _ITEM_BYTES[element]
    return KeyRows(
        element=element,
        packed=packed,
        group=group,
        elements=elements,
        stride=stride,
        alignment=math.gcd(_VECTOR_BYTES, stride * item) // item,
    )


def lister(source: KeySourceSpec) -> Any:
    """Move the present slots of a list together, as page and row in it.

    The macro takes the row, its lists, two shared buffers as long as the list to work in, and one
    for the result: 64 bits a key, the page in the upper half. The last number of the second work
    buffer is then the number of keys. Page and row are one number because two stores at computed
    places make the compiler put a barrier of some of the threads between them.
    """
    length, rows_per_page = source.list_capacity, source.rows_per_page

    @T.macro
    def list_keys(
        row: Any,
        slot_TL: T.Buffer,
        slot_s: T.Buffer,
        place_s: T.Buffer,
        spot_s: T.Buffer,
    ) -> None:
        for i in T.Parallel(length):
            slot_s[i] = T.if_then_else(i < slot_TL.shape[1], T.cast(slot_TL[row, i], "int32"), -1)
        for i in T.Parallel(length):
            place_s[i] = T.if_then_else(slot_s[i] >= 0, 1, 0)
        T.cumsum(place_s[0:length])
        for i in T.Parallel(length):
            if slot_s[i] >= 0:
                spot_s[place_s[i] - 1] = _spot(slot_s[i], rows_per_page)

    return list_keys


def gatherer(keys: int) -> Any:
    """Copy part of each row of a tile; beyond the last key, that key again.

    The macro takes the tile, the number of keys, the list, the pages, the first element of the part
    in a row, the stride of rows, and where to copy to.
    """

    @T.macro
    def gather(
        tile: Any,
        count: Any,
        spot_s: T.Buffer,
        from_PE: T.Buffer,
        start: Any,
        stride: Any,
        to: T.Buffer,
    ) -> None:
        for k, e in T.Parallel(keys, to.shape[1]):
            at = spot_s[T.min(tile * keys + k, count - 1)]
            to[k, e] = from_PE[at >> 32, (at & _ROW_BITS) * stride + start + e]

    return gather


def _spot(slot: Any, rows_per_page: int) -> Any:
    """Page and row of a slot that is there; all rows are of one page where pages have no size."""
    page, row = (slot // rows_per_page, slot % rows_per_page) if rows_per_page else (0, slot)
    return (T.cast(page, "int64") << 32) | T.cast(row, "int64")


def widener(source: KeySourceSpec, width: int, keys: int, product: str) -> Any:
    """Multiply the elements of a tile with their scales, if they have any.

    The macro takes elements and scale bytes as gathered, a shared buffer of fp32 for the scales,
    and the tile to fill.
    """
    rows = key_rows(source.number_format, width)
    group = rows.group

    @T.macro
    def copy(raw: T.Buffer, raw_scale: T.Buffer, scale_s: T.Buffer, key_s: T.Buffer) -> None:
        for k, d in T.Parallel(keys, width):
            key_s[k, d] = T.cast(raw[k, d], product)

    @T.macro
    def widen(raw: T.Buffer, raw_scale: T.Buffer, scale_s: T.Buffer, key_s: T.Buffer) -> None:
        for k, g in T.Parallel(keys, width // group):
            scale_s[k, g] = _scale_value(raw_scale[k, g], source.number_format)
        if rows.packed == 1:
            for k, g, d in T.Parallel(keys, width // group, group):
                key_s[k, g * group + d] = T.cast(
                    T.cast(raw[k, g * group + d], "float32") * scale_s[k, g], product
                )
        else:
            for k, g, e in T.Parallel(keys, width // group, group // 2):
                byte = raw[k, g * (group // 2) + e]
                at = g * group + 2 * e
                key_s[k, at] = T.cast(_e2m1_value(byte & 15) * scale_s[k, g], product)
                key_s[k, at + 1] = T.cast(_e2m1_value(byte >> 4) * scale_s[k, g], product)

    return widen if group else copy


def _scale_value(byte: Any, number_format: str) -> Any:
    """The fp32 value of a scale."""
    if number_format == "fp4_e4m3x16":
        return T.cast(T.reinterpret(byte, "float8_e4m3fn"), "float32")
    bits = T.cast(byte, "uint32") << 23
    smallest, nan = T.uint32(0x00400000), T.uint32(0x7FC00000)
    bits = T.if_then_else(byte == 0, smallest, T.if_then_else(byte == 255, nan, bits))
    return T.reinterpret(bits, "float32")


def _e2m1_value(code: Any) -> Any:
    """The fp32 value of a four-bit code."""
    doubled = (T.uint32(_E2M1_DOUBLED) >> (T.cast(code & 7, "uint32") * 4)) & 15
    value = T.cast(doubled, "float32") * 0.5
    return T.if_then_else(code < 8, value, -value)
