"""Do cache rows have the right length and layout, and do they read back exactly?"""

import pytest
import torch
from deepinfer_core.errors import NotSupported
from deepinfer_core.numeric import (
    decode_parts,
    decode_rows,
    encode_parts,
    encode_rows,
    fake_quantise,
    quantise,
    row_bytes,
)

FORMATS = ["mxfp8", "mxfp4", "fp4_e4m3x16", "bfloat16", "float32", "float64"]


@pytest.mark.parametrize(
    ("name", "width", "expected"),
    [
        ("mxfp8", 512, 528),
        ("fp4_e4m3x16", 512, 288),
        ("mxfp4", 128, 68),
        ("mxfp8", 64, 66),
        ("fp4_e4m3x16", 64, 36),
        ("mxfp4", 32, 17),
        ("bfloat16", 512, 1024),
        ("float32", 512, 2048),
        ("float64", 512, 4096),
    ],
)
def test_a_row_takes_the_published_number_of_bytes(name, width, expected):
    assert row_bytes(name, width) == expected
    assert encode_rows(torch.ones(2, width), name).shape == (2, expected)


@pytest.mark.parametrize("name", FORMATS)
def test_data_come_first_and_scales_behind(noise, name):
    x = noise(5, 96)
    data, scale = encode_parts(x, name)
    rows = encode_rows(x, name)
    assert torch.equal(rows[:, : data.shape[1]], data)
    assert torch.equal(rows[:, data.shape[1] :], scale)
    stored = quantise(x, name)
    assert torch.equal(data, stored.data.view(torch.uint8))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_rows_read_back_as_a_round_trip(noise, name, dtype):
    x = noise(3, 2, 64).to(dtype)
    rows = encode_rows(x, name)
    assert rows.dtype == torch.uint8
    assert torch.equal(decode_rows(rows, name, 64, dtype), fake_quantise(x, name))


@pytest.mark.parametrize("name", FORMATS)
def test_rows_read_back_from_a_strided_pool(noise, name):
    # A pool row may be wider than the entry and start at any byte.
    x = noise(4, 64)
    width = row_bytes(name, 64)
    pool = torch.zeros(4, width + 7, dtype=torch.uint8)
    pool[:, 3 : 3 + width] = encode_rows(x, name)
    assert torch.equal(decode_rows(pool[:, 3 : 3 + width], name, 64), fake_quantise(x, name))


@pytest.mark.parametrize("name", FORMATS)
def test_parts_read_back_without_being_joined(noise, name):
    x = noise(4, 64)
    assert torch.equal(decode_parts(*encode_parts(x, name), name), fake_quantise(x, name))


@pytest.mark.parametrize("name", FORMATS)
def test_no_rows_encode_to_no_rows(name):
    rows = encode_rows(torch.empty(0, 64), name)
    assert rows.shape == (0, row_bytes(name, 64))
    assert decode_rows(rows, name, 64).shape == (0, 64)


def test_lossless_rows_keep_every_bit(noise):
    x = noise(4, 48)
    assert torch.equal(decode_rows(encode_rows(x, "float32"), "float32", 48), x)


def test_rows_of_another_length_are_refused():
    with pytest.raises(NotSupported, match=r"width 128 \(132 bytes\), found rows of 66 bytes"):
        decode_rows(torch.zeros(1, 66, dtype=torch.uint8), "mxfp8", 128)


def test_square_blocks_cannot_be_cache_rows():
    with pytest.raises(NotSupported, match="scales shared by 32 rows"):
        row_bytes("fp8_32x32", 64)
