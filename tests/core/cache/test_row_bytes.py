"""Planned bytes of cache rows agree with the number formats."""

import pytest
from deepinfer_core.cache.row_bytes import planned_row_bytes
from deepinfer_core.errors import NotSupported
from deepinfer_core.numeric import row_bytes

FORMATS = ("mxfp8", "mxfp4", "fp4_e4m3x16", "bfloat16", "float32", "float64")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("width", [32, 64, 512])
def test_a_row_takes_what_the_number_format_says(name: str, width: int) -> None:
    assert planned_row_bytes(name, width) == row_bytes(name, width)


def test_rows_of_the_full_size_model_take_the_published_bytes() -> None:
    assert planned_row_bytes("mxfp8", 512) == 528
    assert planned_row_bytes("fp4_e4m3x16", 512) == 288
    assert planned_row_bytes("mxfp4", 128) == 68


def test_a_ragged_width_and_an_unknown_format_are_refused() -> None:
    with pytest.raises(NotSupported, match="groups of 32"):
        planned_row_bytes("mxfp8", 48)
    with pytest.raises(NotSupported, match="fp8_32x32"):
        planned_row_bytes("fp8_32x32", 32)
