"""Is e4m3 rounding saturating, nearest, ties to even, over all codes?"""

import math
from itertools import pairwise

import pytest
import torch
from deepinfer_core.numeric.e4m3 import MAX_E4M3, encode_e4m3, find_nan_e4m3


def value_of_code(code: int) -> float:
    """The definition: 1 sign, 4 exponent (bias 7), 3 mantissa bits; 0x7f and 0xff are NaN."""
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = (code >> 3) & 0xF, code & 0x7
    if exponent == 15 and mantissa == 7:
        return math.nan
    if exponent == 0:
        return sign * mantissa * 2.0**-9
    return sign * (8 + mantissa) * 2.0 ** (exponent - 10)


POSITIVE = [value_of_code(code) for code in range(0x7F)]


def codes_of(values: list[float]) -> list[int]:
    return encode_e4m3(torch.tensor(values)).view(torch.uint8).tolist()


def test_every_code_decodes_to_its_definition():
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    decoded = codes.view(torch.float8_e4m3fn).to(torch.float32).tolist()
    for code, value in enumerate(decoded):
        expected = value_of_code(code)
        assert value == expected or (math.isnan(value) and math.isnan(expected))


def test_every_value_encodes_to_its_code():
    assert codes_of(POSITIVE) == list(range(0x7F))
    assert codes_of([-value for value in POSITIVE]) == list(range(0x80, 0xFF))


def test_every_midpoint_goes_to_the_even_code():
    midpoints = [(low + high) / 2 for low, high in pairwise(POSITIVE)]
    expected = [code + (code & 1) for code in range(len(midpoints))]
    assert codes_of(midpoints) == expected
    assert codes_of([-value for value in midpoints]) == [code | 0x80 for code in expected]


@pytest.mark.parametrize(("direction", "step"), [(math.inf, 1), (-math.inf, 0)])
def test_next_to_a_midpoint_the_nearer_code_wins(direction, step):
    midpoints = torch.tensor([(low + high) / 2 for low, high in pairwise(POSITIVE)])
    beside = torch.nextafter(midpoints, torch.tensor(direction))
    expected = [code + step for code in range(len(midpoints))]
    assert encode_e4m3(beside).view(torch.uint8).tolist() == expected


@pytest.mark.parametrize("value", [448.1, 464.0, 480.0, 1e30, math.inf])
def test_values_beyond_the_largest_saturate(value):
    assert codes_of([value, -value]) == [0x7E, 0xFE]
    assert value_of_code(0x7E) == MAX_E4M3


def test_nan_stays_nan():
    assert codes_of([math.nan])[0] & 0x7F == 0x7F


def test_the_sign_of_zero_is_kept():
    assert codes_of([0.0, -0.0]) == [0x00, 0x80]


def test_half_the_smallest_value_rounds_to_zero_and_more_does_not():
    assert codes_of([2.0**-10, 2.0**-10 * 1.001]) == [0, 1]


def test_fp64_input_is_rounded_to_fp32_first():
    # Just above the tie between 1 and 1.125: fp32 cannot hold the difference, so the tie decides.
    above_tie = torch.tensor([1.0625 + 2.0**-40], dtype=torch.float64)
    assert encode_e4m3(above_tie).view(torch.uint8).item() == 0x38


def test_a_long_tensor_is_rounded_like_a_short_one():
    values = torch.linspace(-500, 500, 10_007)
    one_by_one = torch.cat([encode_e4m3(value[None]) for value in values[::97]])
    assert torch.equal(encode_e4m3(values)[::97].view(torch.uint8), one_by_one.view(torch.uint8))


@pytest.mark.parametrize("code", [0x7F, 0xFF])
def test_a_nan_code_is_found(code):
    data = torch.zeros(2, 8, dtype=torch.uint8)
    assert find_nan_e4m3(data.view(torch.float8_e4m3fn)) is None
    data[1, 3] = code
    assert find_nan_e4m3(data.view(torch.float8_e4m3fn)) == 11


def test_nothing_contains_no_nan():
    assert find_nan_e4m3(torch.empty(0, dtype=torch.uint8)) is None
