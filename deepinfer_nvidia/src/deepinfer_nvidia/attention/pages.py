"""How do kernels see the pages of a cache?

Shapes: P pages, R rows of a page, X stored elements of a row, G scales of a row, B bytes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from math import gcd

import torch
from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.attention import CachePages
from deepinfer_core.interfaces.operators.cache import RowPagesSpec
from deepinfer_core.numeric import NumberFormat, number_format

__all__ = ["PageViews", "known_format", "page_views"]

FORMATS = ("mxfp8", "mxfp4", "fp4_e4m3x16", "bfloat16", "float32")
_VECTOR_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PageViews:
    """Pages as kernels take them.

    Attributes:
        spec: layout of the views.
        data_PRX: stored elements; packed codes as bytes, or as int32 where asked for.
        scale_PRG: scales, in bytes or as e4m3 numbers; None for plain formats.
    """

    spec: RowPagesSpec
    data_PRX: torch.Tensor
    scale_PRG: torch.Tensor | None

    def arguments(self) -> dict[str, torch.Tensor]:
        """The views by the names that kernels give them."""
        scales = {} if self.scale_PRG is None else {"scale_PRG": self.scale_PRG}
        return {"data_PRX": self.data_PRX, **scales}


def known_format(name: str) -> NumberFormat:
    """Look a format up.

    Raises:
        NotSupported: there is no such format, or the kernels do not know it.
    """
    form = number_format(name)
    if name not in FORMATS:
        raise NotSupported(
            f"asked for cache rows in {name}, found kernels for {', '.join(FORMATS)}",
            hint="choose core.reference, which reads and writes every format",
        )
    return form


def page_views(pages: CachePages, *, words: bool = False) -> PageViews:
    """Look at pages as data and scales.

    Args:
        pages: any region.
        words: packed codes as int32, eight a word.

    Raises:
        NotSupported: an unknown format, a width of partial groups, pages without room for their
            rows, bytes of a page that do not lie one behind the other, or words off their places.
    """
    form = known_format(pages.number_format)
    rows, width = pages.rows_per_page, pages.width
    data_PB = pages.data_PB
    data_bytes, scale_bytes = form.data_bytes(width), form.scale_bytes(width)
    used_bytes = rows * (data_bytes + scale_bytes)
    if data_PB.shape[1] < used_bytes or data_PB.stride(1) != 1:
        raise NotSupported(
            f"asked for pages of {used_bytes} bytes, found {data_PB.shape[1]} with stride"
            f" {data_PB.stride(1)}",
            hint="give each page room for its rows, one byte behind the other",
        )
    # The distance of a single page from the next means nothing.
    distance = data_PB.stride(0) if data_PB.shape[0] > 1 else used_bytes
    data_step = data_bytes if pages.scales_apart else data_bytes + scale_bytes
    scale_step = scale_bytes if pages.scales_apart else data_bytes + scale_bytes
    scale_start = rows * data_bytes if pages.scales_apart else data_bytes
    dtype = torch.int32 if words and form.values_per_element > 1 else form.storage
    spec = _spec(
        pages.number_format,
        width,
        rows,
        (distance, data_step),
        scale_step,
        dtype.itemsize,
        gcd(_VECTOR_BYTES, data_PB.data_ptr(), distance, data_step),
    )
    data = _region(data_PB, 0, rows, (distance, data_step, data_bytes)).view(dtype)
    if form.is_plain:
        return PageViews(spec=spec, data_PRX=data, scale_PRG=None)
    scale = _region(data_PB, scale_start, rows, (distance, scale_step, scale_bytes))
    if form.scale == "e4m3":
        scale = scale.view(torch.float8_e4m3fn)
    return PageViews(spec=spec, data_PRX=data, scale_PRG=scale)


@functools.cache
def _spec(
    name: str,
    width: int,
    rows: int,
    data_steps: tuple[int, int],
    scale_step: int,
    element_bytes: int,
    alignment_bytes: int,
) -> RowPagesSpec:
    """Few layouts, asked for in every call."""
    if alignment_bytes % element_bytes:
        raise NotSupported(
            f"asked for {name} rows in elements of {element_bytes} bytes, found them at multiples"
            f" of {alignment_bytes}",
            hint="start every page and row at a multiple of an element",
        )
    distance, data_step = data_steps
    is_plain = number_format(name).is_plain
    return RowPagesSpec(
        number_format=name,
        width=width,
        rows_per_page=rows,
        data_strides=(distance // element_bytes, data_step // element_bytes),
        scale_strides=(0, 0) if is_plain else (distance, scale_step),
        alignment_bytes=alignment_bytes,
    )


def _region(
    data_PB: torch.Tensor, start: int, rows: int, steps: tuple[int, int, int]
) -> torch.Tensor:
    distance, step, size = steps
    shape = (data_PB.shape[0], rows, size)
    return data_PB.as_strided(shape, (distance, step, 1), data_PB.storage_offset() + start)
