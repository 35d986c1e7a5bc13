"""Does a ue8m0 byte stand for the right power of two, and is its logarithm exact?"""

import math

import torch
from deepinfer_core.numeric.ue8m0 import (
    ceil_log2_byte,
    decode_ue8m0,
    find_nan_scale,
    reciprocal_ue8m0,
)

ALL_BYTES = torch.arange(256, dtype=torch.int32).to(torch.uint8)


def test_every_byte_decodes_to_its_power_of_two():
    decoded = decode_ue8m0(ALL_BYTES)
    for byte in range(255):
        assert float(decoded[byte]) == math.ldexp(1.0, byte - 127)


def test_byte_255_decodes_to_nan():
    assert math.isnan(float(decode_ue8m0(ALL_BYTES)[255]))
    assert math.isnan(float(reciprocal_ue8m0(ALL_BYTES)[255]))


def test_every_reciprocal_is_the_inverse_power():
    inverse = reciprocal_ue8m0(ALL_BYTES)
    for byte in range(255):
        assert float(inverse[byte]) == math.ldexp(1.0, 127 - byte)


def test_an_exact_power_of_two_keeps_its_exponent():
    powers = decode_ue8m0(ALL_BYTES[1:255])
    assert torch.equal(ceil_log2_byte(powers), ALL_BYTES[1:255])


def test_one_bit_above_a_power_of_two_goes_up():
    powers = decode_ue8m0(ALL_BYTES[1:254])
    above = torch.nextafter(powers, torch.tensor(torch.inf))
    assert torch.equal(ceil_log2_byte(above), ALL_BYTES[2:255])


def test_one_bit_below_a_power_of_two_stays_at_it():
    powers = decode_ue8m0(ALL_BYTES[2:255])
    below = torch.nextafter(powers, torch.tensor(0.0))
    assert torch.equal(ceil_log2_byte(below), ALL_BYTES[2:255])


def test_the_logarithm_of_nan_is_the_nan_byte():
    assert ceil_log2_byte(torch.tensor([torch.nan])).tolist() == [255]


def test_a_nan_scale_is_found_by_its_first_index():
    scale = torch.zeros(3, 4, dtype=torch.uint8)
    assert find_nan_scale(scale) is None
    scale[1, 2] = scale[2, 0] = 255
    assert find_nan_scale(scale) == 6


def test_no_scales_contain_no_nan():
    assert find_nan_scale(torch.empty(0, dtype=torch.uint8)) is None
