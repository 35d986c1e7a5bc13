"""Which uniform number belongs to a seed and a position?

A counter-based generator: each number is a function of (seed, position, case) alone, so draws
depend neither on the batch nor on earlier draws. All arithmetic is modulo 2^64; int64 tensors hold
the bits, because their products and sums wrap the same way.

    s = (3 * position + case) * 0x9E3779B97F4A7C15
    x = seed + (s xor (s << 13))
    one SplitMix64 step on x, of which the upper 53 bits count

Source: the portable sampling generator of DeepInfer 0.1.0; SplitMix64 is by Steele, Lea and Flood.
"""

import torch

__all__ = ["ACCEPTANCE_CASE", "FRESH_CASE", "RESIDUAL_CASE", "UNIFORM_BITS", "uniform_bits"]

FRESH_CASE = 0
"""Case of an ordinary draw."""

RESIDUAL_CASE = 1
"""Case of the draw of a token that takes a rejected draft's place."""

ACCEPTANCE_CASE = 2
"""Case of the test whether a draft is accepted."""

UNIFORM_BITS = 53
"""Bits of a number; divided by 2^53 it is the uniform number in [0, 1)."""

_CASES = 3


def uniform_bits(seed_R: torch.Tensor, position_R: torch.Tensor, case: int) -> torch.Tensor:
    """Give int64 numbers below 2^53.

    Args:
        seed_R: int64, the bits of unsigned seeds.
        position_R: int64.
        case: which of the position's numbers.
    """
    s_R = (_CASES * position_R + case) * _signed(0x9E3779B97F4A7C15)
    x_R = seed_R + (s_R ^ (s_R << 13))
    z_R = x_R + _signed(0x9E3779B97F4A7C15)
    z_R = (z_R ^ _shift_right(z_R, 30)) * _signed(0xBF58476D1CE4E5B9)
    z_R = (z_R ^ _shift_right(z_R, 27)) * _signed(0x94D049BB133111EB)
    return _shift_right(z_R ^ _shift_right(z_R, 31), 64 - UNIFORM_BITS)


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


def _shift_right(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Shift in zeros, also where the top bit is set."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
