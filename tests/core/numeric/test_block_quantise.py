"""Do the group quantisers follow their rules bit by bit, at every edge?"""

import math
from fractions import Fraction

import pytest
import torch
from deepinfer_core.errors import NotSupported
from deepinfer_core.numeric import fake_quantise, quantise
from deepinfer_core.numeric.block_quantise import (
    dequantise_fp8_32x32,
    quantise_fp4_e4m3x16,
    quantise_fp8_32x32,
    quantise_mxfp4,
    quantise_mxfp8,
)
from deepinfer_core.numeric.e2m1 import encode_e2m1

ROW_FORMATS = ["mxfp8", "mxfp4", "fp4_e4m3x16"]


def golden_input() -> torch.Tensor:
    """x_i = bf16(((7 i mod 32) - 15.5) * 0.37), the published example row."""
    index = torch.arange(32)
    return (((7 * index % 32) - 15.5) * 0.37).to(torch.bfloat16)


def hexadecimal(data: torch.Tensor) -> str:
    return bytes(data.view(torch.uint8).tolist()).hex(" ")


def all_positive_bf16() -> torch.Tensor:
    return torch.arange(1, 0x7F80, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)


def test_mxfp8_gives_the_golden_bytes():
    data, scale = quantise_mxfp8(golden_input())
    assert scale.tolist() == [121]
    assert hexadecimal(data) == (
        "fc f5 e1 70 79 f9 f0 61 75 7c f6 e7 6d 78 fa f2"
        " 54 73 7b f8 ea 6a 78 fb f3 d4 72 7a f8 ed 67 76"
    )


def test_mxfp4_gives_the_golden_bytes():
    data, scale = quantise_mxfp4(golden_input())
    assert scale.tolist() == [127]
    assert hexadecimal(data) == "df 49 e6 1c 75 ae 63 ce 50 e7 3b f6 8d 64 be 62"


def test_fp4_with_e4m3_scales_gives_the_golden_bytes():
    data, scale = quantise_fp4_e4m3x16(golden_input())
    assert hexadecimal(scale) == "37 36"
    assert hexadecimal(data) == "df 49 e6 1c 75 ae 64 df 50 e7 3b f6 8d 75 ce 62"


@pytest.mark.parametrize(
    ("name", "largest", "floor"), [("mxfp8", 448, 1e-4), ("mxfp4", 6, 6 * 2.0**-126)]
)
def test_the_scale_of_every_bf16_amax_is_the_exact_ceiling(name, largest, floor):
    amax = all_positive_bf16()
    rows = torch.zeros(amax.numel(), 32, dtype=torch.bfloat16)
    rows[:, 17] = -amax
    scale = quantise(rows, name).scale.flatten().tolist()
    floor = Fraction(float(torch.tensor(floor)))
    for value, byte in zip(amax.double().tolist()[::7], scale[::7], strict=True):
        quotient = max(Fraction(value), floor) / largest
        assert Fraction(2) ** (byte - 127) >= quotient > Fraction(2) ** (byte - 128)


@pytest.mark.parametrize(("name", "largest"), [("mxfp8", 448.0), ("mxfp4", 6.0)])
def test_an_amax_on_the_edge_fills_the_range_and_one_bit_more_doubles_the_scale(name, largest):
    rows = torch.zeros(2, 32, dtype=torch.bfloat16)
    rows[:, 0] = largest
    rows[1, 0] = torch.nextafter(rows[1, 0], torch.tensor(math.inf, dtype=torch.bfloat16))
    assert quantise(rows, name).scale.flatten().tolist() == [127, 128]


def test_the_fp4_scale_equals_a_rounded_division_for_every_bf16_amax():
    amax = all_positive_bf16()
    rows = torch.zeros(amax.numel(), 16, dtype=torch.bfloat16)
    rows[:, 3] = amax
    quotient = (amax.double().clamp(min=6 * 2.0**-9) / 6).clamp(max=448)
    expected = quotient.to(torch.float32).to(torch.float8_e4m3fn)
    assert torch.equal(
        quantise_fp4_e4m3x16(rows)[1].flatten().view(torch.uint8), expected.view(torch.uint8)
    )


def test_fp4_data_are_multiplied_by_the_fp32_reciprocal():
    # Over all scales and bf16 numbers, product and quotient round to different codes 42 times:
    # where the quotient is an exact midpoint and the rounded reciprocal moves the product off it.
    differing = 0
    values = all_positive_bf16().float()
    for scale in torch.arange(1, 0x7F, dtype=torch.int32).to(torch.uint8).view(torch.float8_e4m3fn):
        x = values[values <= 6 * float(scale)]
        rows = torch.zeros(x.numel(), 16)
        rows[:, 0], rows[:, 1] = 6 * float(scale), x
        data, found_scale = quantise_fp4_e4m3x16(rows)
        assert (found_scale.float() == float(scale)).all()
        found = data[:, 0] >> 4
        assert torch.equal(found, encode_e2m1(x * (1 / scale.float())))
        differing += int((found != encode_e2m1(x / scale.float())).sum())
    assert differing == 42


@pytest.mark.parametrize(
    ("name", "byte"), [("mxfp8", 127 - 22), ("mxfp4", 1), ("fp4_e4m3x16", 0x01)]
)
def test_the_scale_of_a_zero_row_is_the_smallest(name, byte):
    # 1e-4 / 448 lies between 2^-23 and 2^-22; 6 x 2^-126 / 6 is byte 1; 2^-9 is the e4m3 code 1.
    assert quantise(torch.zeros(1, 32), name).scale.view(torch.uint8).flatten()[0] == byte


@pytest.mark.parametrize("name", ROW_FORMATS)
def test_a_zero_row_comes_back_as_zero(name):
    assert torch.equal(fake_quantise(torch.zeros(3, 64), name), torch.zeros(3, 64))


@pytest.mark.parametrize("name", ROW_FORMATS)
def test_the_sign_of_zero_survives(name):
    back = fake_quantise(torch.tensor([0.0, -0.0] * 16), name)
    assert torch.signbit(back).tolist() == [False, True] * 16


@pytest.mark.parametrize("name", ROW_FORMATS)
@pytest.mark.parametrize("rows", [0, 1, 2])
def test_any_number_of_rows_keeps_its_shape(name, rows):
    assert fake_quantise(torch.ones(rows, 2, 96), name).shape == (rows, 2, 96)


@pytest.mark.parametrize("name", ROW_FORMATS)
@pytest.mark.parametrize("width", [8, 33, 40, 63])
def test_partial_groups_are_refused(name, width):
    with pytest.raises(NotSupported, match=f"{name} rows of width {width}"):
        quantise(torch.ones(1, width), name)


def test_nan_in_mxfp8_spoils_its_own_element_only():
    row = golden_input().clone()
    expected = fake_quantise(row, "mxfp8")
    row[0] = math.nan  # not the element that sets the scale: that is |5.75| elsewhere
    back = fake_quantise(row, "mxfp8")
    assert math.isnan(float(back[0]))
    assert torch.equal(back[1:], expected[1:])


@pytest.mark.parametrize(("name", "group"), [("mxfp4", 32), ("fp4_e4m3x16", 16)])
def test_nan_in_four_bits_spoils_its_group_only(name, group):
    row = torch.full((64,), 6.0)
    row[0] = math.nan
    back = fake_quantise(row, name)
    assert back[:group].isnan().all()
    assert back[group:].tolist() == [6.0] * (64 - group)


@pytest.mark.parametrize("name", ["mxfp8", "mxfp4"])
def test_infinity_saturates_the_data_and_comes_back_infinite(name):
    row = torch.ones(32)
    row[5], row[6] = math.inf, -math.inf
    back = fake_quantise(row, name)
    assert (float(back[5]), float(back[6])) == (math.inf, -math.inf)
    assert back[:5].tolist() == [0.0] * 5


def test_infinity_becomes_the_largest_value_of_fp4_with_e4m3_scales():
    row = torch.ones(16)
    row[5] = -math.inf
    assert float(fake_quantise(row, "fp4_e4m3x16")[5]) == -6.0 * 448.0


@pytest.mark.parametrize("name", ROW_FORMATS)
def test_quantising_twice_changes_nothing(noise, name):
    once = fake_quantise(noise(40, 64), name)
    assert torch.equal(fake_quantise(once, name), once)


@pytest.mark.parametrize("name", [*ROW_FORMATS, "fp8_32x32"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_decoded_values_are_exact_in_bf16(noise, name, dtype):
    back = fake_quantise(noise(64, 64).to(dtype), name)
    assert back.dtype == dtype
    assert torch.equal(back.to(torch.bfloat16).to(dtype), back)


@pytest.mark.parametrize("name", ROW_FORMATS)
def test_fp64_input_is_rounded_to_fp32_first(noise, name):
    wide = noise(16, 32).double() * (1 + 2.0**-30)
    assert torch.equal(fake_quantise(wide, name), fake_quantise(wide.float(), name).double())


# Half a step of the codes: e4m3 has 3 mantissa bits, so half a step is 2^-4 of the value, e2m1 has
# 1, so it is 2^-2 of it; below the normal range it is a fixed share of amax: 2^-10 of a scale above
# amax / 448 / 2, and 0.25 of a scale between amax / 6 and amax / 3.
@pytest.mark.parametrize(
    ("name", "relative", "of_amax"),
    [("mxfp8", 2**-4, 2**-9 / 448), ("mxfp4", 2**-2, 0.25 / 3), ("fp4_e4m3x16", 2**-2, 0.27 / 6)],
)
def test_the_error_stays_within_half_a_step(noise, name, relative, of_amax):
    x = noise(512, 32)
    group = 16 if name == "fp4_e4m3x16" else 32
    amax = x.abs().reshape(512, -1, group).amax(-1).repeat_interleave(group, -1)
    # An e4m3 scale is off by up to 2^-4, so the largest values may saturate by as much (< 2^-2).
    allowed = torch.maximum(relative * x.abs(), of_amax * amax)
    assert ((fake_quantise(x, name) - x).abs() <= allowed * (1 + 1e-6)).all()


@pytest.mark.parametrize(
    ("name", "largest"), [("mxfp8", 448), ("mxfp4", 6), ("fp4_e4m3x16", 6), ("fp8_32x32", 448)]
)
def test_rounding_has_no_bias(generator, name, largest):
    # Uniform data between zero and the largest code: every interval between two codes is filled
    # evenly, so rounding to nearest errs by zero on average, and truncation would not.
    x = torch.rand(4096, 64, generator=generator) * largest
    x[:, ::16] = largest  # scale 1 for every group
    error = fake_quantise(x, name) - x
    # The mean of n independent errors of standard deviation sigma stays within 5 sigma / sqrt(n)
    # but for one case in two million.
    assert abs(float(error.mean())) < 5 * float(error.std()) / math.sqrt(x.numel())


@pytest.mark.parametrize("shape", [(1, 1), (31, 32), (32, 32), (33, 31), (64, 96), (65, 97)])
def test_square_blocks_may_be_ragged_at_the_edges(noise, shape):
    weight = noise(*shape)
    data, scale = quantise_fp8_32x32(weight)
    assert data.shape == shape
    assert scale.shape == (-(-shape[0] // 32), -(-shape[1] // 32))
    for row in range(scale.shape[0]):
        for column in range(scale.shape[1]):
            block = weight[32 * row : 32 * row + 32, 32 * column : 32 * column + 32]
            exponent = math.ceil(math.log2(float(block.abs().max()) / 448))
            assert int(scale[row, column]) == exponent + 127
    assert torch.allclose(dequantise_fp8_32x32(data, scale), weight, rtol=2**-4, atol=2**-9 / 64)


def test_a_stack_of_matrices_is_quantised_matrix_by_matrix(noise):
    stack = noise(3, 40, 70)
    data, scale = quantise_fp8_32x32(stack)
    for index in range(3):
        one_data, one_scale = quantise_fp8_32x32(stack[index])
        assert torch.equal(data[index].view(torch.uint8), one_data.view(torch.uint8))
        assert torch.equal(scale[index], one_scale)


def test_every_fp4_expert_value_survives_in_fp8(noise):
    # 16 codes times a power of two are e4m3 values, so re-encoding experts as FP8 loses nothing
    # while the scales of a 32 x 32 block agree.
    values = fake_quantise(noise(1, 32), "mxfp4").expand(32, 32)
    assert torch.equal(fake_quantise(values, "fp8_32x32"), values)
