"""Does a tensor with scales know its shape and bytes, and refuse the wrong parts?"""

import pytest
import torch
from deepinfer_core.errors import NotSupported
from deepinfer_core.numeric import FORMATS, QuantTensor, number_format, quantise


@pytest.mark.parametrize(
    ("name", "bytes_of_64x96"),
    [
        ("mxfp8", 64 * 96 + 64 * 3),
        ("mxfp4", 64 * 48 + 64 * 3),
        ("fp4_e4m3x16", 64 * 48 + 64 * 6),
        ("fp8_32x32", 64 * 96 + 2 * 3),
        ("bfloat16", 2 * 64 * 96),
        ("float32", 4 * 64 * 96),
        ("float64", 8 * 64 * 96),
    ],
)
def test_shape_counts_values_and_bytes_count_storage(name, bytes_of_64x96):
    tensor = quantise(torch.full((64, 96), 6.0), name)
    assert tensor.shape == (64, 96)
    assert tensor.nbytes == bytes_of_64x96
    assert (tensor.dequantise() == 6.0).all()


def test_every_format_is_covered_by_the_table_above():
    assert set(FORMATS) == {
        *("mxfp8", "mxfp4", "fp4_e4m3x16", "fp8_32x32", "bfloat16", "float32", "float64")
    }


def test_a_packed_stack_counts_its_last_dimension_twice():
    assert quantise(torch.ones(3, 8, 64), "mxfp4").shape == (3, 8, 64)


def test_a_plain_tensor_of_the_right_dtype_is_not_copied():
    data = torch.ones(4, dtype=torch.bfloat16)
    tensor = QuantTensor(data=data, scale=None, format="bfloat16")
    assert tensor.dequantise(torch.bfloat16) is data


def test_dequantising_to_fp64_equals_fp32():
    tensor = quantise(torch.linspace(-3, 3, 64), "mxfp8")
    assert torch.equal(tensor.dequantise(torch.float64), tensor.dequantise().double())


def test_missing_scales_are_refused():
    with pytest.raises(NotSupported, match="mxfp8, found none scales"):
        QuantTensor(data=torch.zeros(32).to(torch.float8_e4m3fn), scale=None, format="mxfp8")


def test_superfluous_scales_are_refused():
    with pytest.raises(NotSupported, match="float32, found some scales"):
        QuantTensor(data=torch.zeros(32), scale=torch.zeros(1), format="float32")


def test_an_unknown_format_is_refused_and_lists_what_exists():
    with pytest.raises(NotSupported, match=r"'fp7'.*mxfp8"):
        number_format("fp7")
