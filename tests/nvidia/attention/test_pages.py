"""How do kernels see cache pages, and which pages do they refuse?

Shapes: P pages, R rows of a page, X stored elements of a row, G scales of a row, B bytes.
"""

from dataclasses import replace

import pytest
import torch
from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.attention import CachePages
from deepinfer_nvidia.attention.pages import page_views


def pages_of(
    number_format: str, width: int, *, distance: int, first: int = 0, apart: bool = False
) -> CachePages:
    """Three pages of four rows in a larger memory of counted bytes."""
    memory_B = torch.arange(3 * distance + first, dtype=torch.int64).to(torch.uint8)
    return CachePages(
        data_PB=memory_B[first:].view(3, distance),
        rows_per_page=4,
        width=width,
        number_format=number_format,
        scales_apart=apart,
    )


def test_data_and_scales_of_a_row_follow_each_other() -> None:
    """64 codes and 2 scales: row 1 of page 2 begins 66 bytes into it."""
    views = page_views(pages_of("mxfp8", 64, distance=320))
    assert views.spec.data_strides == views.spec.scale_strides == (320, 66)
    assert views.spec.alignment_bytes == 2
    assert views.scale_PRG is not None
    place = (2 * 320 + 66) % 256
    assert int(views.data_PRX.view(torch.uint8)[2, 1, 0]) == place
    assert views.scale_PRG[2, 1].tolist() == [(place + 64) % 256, (place + 65) % 256]


def test_scales_apart_follow_all_data() -> None:
    """Four rows of 16 bytes, then four scales; words hold eight codes each."""
    views = page_views(pages_of("mxfp4", 32, distance=96, apart=True), words=True)
    assert views.data_PRX.shape == (3, 4, 4)
    assert views.spec.data_strides == (24, 4)
    assert views.spec.scale_strides == (96, 1)
    assert views.scale_PRG is not None
    assert views.scale_PRG[1].flatten().tolist() == [160, 161, 162, 163]


def test_a_write_into_a_view_is_a_write_into_the_pages() -> None:
    """Nothing is copied."""
    pages = pages_of("float32", 8, distance=128)
    page_views(pages).data_PRX[1, 2, 3] = 1.0
    assert pages.data_PB[1].view(torch.float32)[2 * 8 + 3] == 1.0


@pytest.mark.parametrize("distance", [4 * 66 - 1, 100])
def test_pages_without_room_for_their_rows_are_refused(distance: int) -> None:
    """Rows would reach into the next page."""
    with pytest.raises(NotSupported, match="264 bytes"):
        page_views(pages_of("mxfp8", 64, distance=distance))


def test_bytes_that_lie_apart_are_refused() -> None:
    """Every second byte of a memory is no page."""
    pages = pages_of("mxfp8", 64, distance=640)
    with pytest.raises(NotSupported, match="stride 2"):
        page_views(replace(pages, data_PB=pages.data_PB[:, ::2]))


@pytest.mark.parametrize(("distance", "first"), [(128, 2), (130, 0)])
def test_elements_off_their_places_are_refused(distance: int, first: int) -> None:
    """A device cannot read an fp32 number at an odd multiple of two bytes."""
    with pytest.raises(NotSupported, match="multiples of 2"):
        page_views(pages_of("float32", 8, distance=distance, first=first))


def test_formats_without_kernels_are_refused() -> None:
    """The hint names who knows them."""
    with pytest.raises(NotSupported, match="float64"):
        page_views(pages_of("float64", 8, distance=256))
