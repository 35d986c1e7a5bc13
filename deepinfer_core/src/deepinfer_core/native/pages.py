"""How are cache pages described to the kernels?

``kernels/formats.h`` has the other side: the codes of number formats, and ``di_pages``.
"""

from __future__ import annotations

import functools

from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.attention import CachePages
from deepinfer_core.numeric import FORMATS, NumberFormat, number_format

__all__ = ["PAGE_LETTERS", "format_code", "page_words"]

_CODES = {"bfloat16": 0, "float32": 1, "mxfp8": 2, "mxfp4": 3, "fp4_e4m3x16": 4}
_KNOWN = {name: (FORMATS[name], code) for name, code in _CODES.items()}

PAGE_LETTERS = "plllll"
"""Arguments that ``page_words`` makes; see ``library.bind``."""


def format_code(name: str) -> tuple[NumberFormat, int]:
    """A format and its code.

    Raises:
        NotSupported: no such format, or the kernels do not know it.
    """
    found = _KNOWN.get(name)
    if found is None:
        number_format(name)
        raise NotSupported(
            f"asked for rows in {name}, found kernels for {', '.join(_CODES)}",
            hint="choose core.reference, which reads and writes every format",
        )
    return found


def page_words(pages: CachePages) -> tuple[int, int, int, int, int, int]:
    """Address, stride, rows of a page, width, format code, and whether scales lie apart.

    Raises:
        NotSupported: a format that the kernels do not know, a width of partial groups, or bytes
            of a page that do not lie one behind the other.
    """
    code, row_bytes = _row(pages.number_format, pages.width)
    data_PB = pages.data_PB
    stride, step = data_PB.stride()
    used_bytes = pages.rows_per_page * row_bytes
    if data_PB.shape[1] < used_bytes or step != 1:
        raise NotSupported(
            f"asked for pages of {used_bytes} bytes, found {data_PB.shape[1]} with stride {step}",
            hint="give each page room for its rows, one byte behind the other",
        )
    return (
        data_PB.data_ptr(),
        stride,
        pages.rows_per_page,
        pages.width,
        code,
        pages.scales_apart,
    )


@functools.cache
def _row(name: str, width: int) -> tuple[int, int]:
    """Code of a format and bytes of a row: few combinations, asked for in every call."""
    form, code = format_code(name)
    return code, form.row_bytes(width)
