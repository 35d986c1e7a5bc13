"""Is e2m1 rounding right for all codes and midpoints, and does packing put the even channel low?"""

import math

import pytest
import torch
from deepinfer_core.numeric.e2m1 import (
    E2M1_VALUES,
    decode_e2m1,
    encode_e2m1,
    pack_e2m1,
    unpack_e2m1,
)

MAGNITUDES = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def codes_of(values: list[float]) -> list[int]:
    return encode_e2m1(torch.tensor(values)).tolist()


def test_the_table_is_the_definition():
    for code, value in enumerate(E2M1_VALUES):
        exponent, mantissa = (code >> 1) & 3, code & 1
        magnitude = mantissa * 0.5 if exponent == 0 else (1 + mantissa / 2) * 2.0 ** (exponent - 1)
        assert value == math.copysign(magnitude, -1 if code & 8 else 1)
        assert math.copysign(1, value) == (-1 if code & 8 else 1)


def test_every_value_encodes_to_its_code():
    assert codes_of(list(E2M1_VALUES)) == list(range(16))


def test_every_midpoint_goes_to_the_even_code():
    midpoints = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]
    assert codes_of(midpoints) == [0, 2, 2, 4, 4, 6, 6]
    assert codes_of([-value for value in midpoints]) == [8, 10, 10, 12, 12, 14, 14]


@pytest.mark.parametrize(("direction", "step"), [(math.inf, 1), (-math.inf, 0)])
def test_next_to_a_midpoint_the_nearer_code_wins(direction, step):
    midpoints = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    beside = torch.nextafter(midpoints, torch.tensor(direction))
    assert encode_e2m1(beside).tolist() == [code + step for code in range(7)]


def test_values_beyond_six_saturate():
    assert codes_of([6.1, 7.0, 1e30, math.inf]) == [7] * 4
    assert codes_of([-6.1, -7.0, -1e30, -math.inf]) == [15] * 4


def test_the_sign_of_zero_is_kept():
    assert codes_of([0.0, -0.0, -0.1]) == [0, 8, 8]


def test_the_lower_nibble_holds_the_even_channel():
    assert pack_e2m1(torch.tensor([0x1, 0xA], dtype=torch.uint8)).tolist() == [0xA1]


def test_unpacking_undoes_packing_for_every_byte():
    packed = torch.arange(256, dtype=torch.int32).to(torch.uint8).reshape(16, 16)
    codes = unpack_e2m1(packed)
    assert codes.shape == (16, 32)
    assert torch.equal(pack_e2m1(codes), packed)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
def test_decoding_looks_both_nibbles_of_every_byte_up(dtype):
    packed = torch.arange(256, dtype=torch.int32).to(torch.uint8)[:, None].view(dtype)
    decoded = decode_e2m1(packed)
    for byte in range(256):
        low, high = decoded[byte].tolist()
        assert (low, high) == (E2M1_VALUES[byte & 15], E2M1_VALUES[byte >> 4])


def test_no_rows_decode_to_no_rows():
    assert decode_e2m1(torch.empty(0, 4, dtype=torch.uint8)).shape == (0, 8)
