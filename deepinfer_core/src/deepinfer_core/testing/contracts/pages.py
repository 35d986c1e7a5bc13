"""How does a test get cache pages that show every stray write?"""

import torch

from deepinfer_core.interfaces.attention import CachePages
from deepinfer_core.numeric import number_format

__all__ = ["make_pages"]

_ALIGNMENT_BYTES = 64
"""Pages start at multiples of this, as those of the engine's caches may be expected to."""


def make_pages(
    device: str,
    format_name: str,
    width: int,
    *,
    pages: int = 4,
    rows_per_page: int = 5,
    scales_apart: bool = False,
) -> CachePages:
    """Pages that lie apart in a larger memory full of ones.

    Spare bytes behind the rows of a page must never change; a test compares the whole of
    ``data_PB``.
    """
    row_bytes = number_format(format_name).row_bytes(width)
    lines = -(-rows_per_page * row_bytes // _ALIGNMENT_BYTES) + 1
    region_bytes = lines * _ALIGNMENT_BYTES
    stride_bytes = region_bytes + 2 * _ALIGNMENT_BYTES
    memory_PB = torch.full((pages, stride_bytes), 1, dtype=torch.uint8, device=device)
    return CachePages(
        data_PB=memory_PB[:, _ALIGNMENT_BYTES : _ALIGNMENT_BYTES + region_bytes],
        rows_per_page=rows_per_page,
        width=width,
        number_format=format_name,
        scales_apart=scales_apart,
    )
