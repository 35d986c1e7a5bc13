"""Which random bytes make a weight that behaves like an untrained one?

Dequantised weights have mean 0 and variance 1 / (input width), norms are near 1, so that
activations keep their size through a deep model. Nothing is quantised for this: codes are drawn
from tables of normal quantiles, and the power-of-two scales are mixed from two neighbours so that
the variance comes out exactly. A tensor's bytes depend on the seed and its name only, not on the
number of shards.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from functools import cache
from math import floor, log2, prod, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from deepinfer_core.weights.manifest import StoredTensor, WeightSpec

__all__ = ["code_tables", "moments", "random_pieces", "table_spread"]

_PIECE_VALUES = 2**20
_E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
_E2M1_SPREAD = 2.5  # standard deviation whose quantiles use the codes up to 4 of 6
_E4M3_SPREAD = 64.0  # quantiles up to 2.9 standard deviations stay below 448
_Bytes = NDArray[np.uint8]


def random_pieces(seed: int) -> Callable[[WeightSpec, StoredTensor], Iterator[_Bytes]]:
    """Give a source of data for ``write_checkpoint``."""

    def pieces(weight: WeightSpec, stored: StoredTensor) -> Iterator[_Bytes]:
        generator = np.random.default_rng([seed, zlib.crc32(stored.name.encode())])
        mean, spread = moments(weight)
        left = prod(stored.shape)
        while left:
            count = min(left, _PIECE_VALUES)
            left -= count
            if stored.dtype in {"BF16", "F32"}:
                yield _plain(generator, count, mean, spread, stored.dtype)
            elif stored.name != weight.name:
                yield _scales(generator, count, spread / table_spread(weight.format))
            else:
                table = code_tables(weight.format)
                yield table[generator.integers(0, 256, count, dtype=np.uint8)]

    return pieces


def code_tables(form: str) -> _Bytes:
    """The 256 bytes, each as likely, that a quantised weight's data are drawn from.

    Args:
        form: ``mxfp4``, two codes a byte, or a format of e4m3 codes.
    """
    return _e2m1_pairs() if form == "mxfp4" else _e4m3_codes()


def moments(weight: WeightSpec) -> tuple[float, float]:
    """Mean and standard deviation by the part that the weight plays."""
    name = weight.name
    near_one = ("norm.weight", "norm1.weight", "norm2.weight", ".q_weight", ".k_weight", "_scale")
    if name.endswith(near_one):
        return 1.0, 0.1
    if name.endswith(("_base", "attn_sink")):
        return 0.0, 0.3
    if name.endswith(("bias", "bias_vl", "_fn")):
        return 0.0, 0.05
    if name.endswith("embed.weight") or name.startswith("image_"):
        return 0.0, 0.5
    return 0.0, 1 / sqrt(weight.shape[-1])


def _plain(
    generator: np.random.Generator, count: int, mean: float, spread: float, dtype: str
) -> _Bytes:
    values: NDArray[np.float32] = generator.standard_normal(count, dtype=np.float32)
    values *= np.float32(spread)
    values += np.float32(mean)
    if dtype == "F32":
        return values.view(np.uint8)
    # Adding half a unit of bf16 before cutting rounds to nearest; ties do not matter here.
    bits = (values.view(np.uint32) + np.uint32(0x8000)) >> np.uint32(16)
    return bits.astype(np.uint16).view(np.uint8)


def _scales(generator: np.random.Generator, count: int, factor: float) -> _Bytes:
    """Bytes of powers of two whose mean square is the square of ``factor``."""
    exponent = floor(log2(factor))
    share = (factor**2 / 4.0**exponent - 1) / 3  # of groups that take the next power
    upper = generator.random(count, dtype=np.float32) < share
    return (upper + (exponent + 127)).astype(np.uint8)


def table_spread(form: str) -> float:
    """Root mean square of the values that the code tables decode to."""
    is_fp4 = form == "mxfp4"
    values = _E2M1[_e2m1_codes() & 7] if is_fp4 else _e4m3_values()[_e4m3_codes() & 0x7F]
    return sqrt(float(np.mean(values**2)))


def _quantiles(count: int) -> NDArray[np.float64]:
    normal = NormalDist()
    return np.array([normal.inv_cdf((place + 0.5) / count) for place in range(count)])


def _nearest_codes(wanted: NDArray[np.float64], values: NDArray[np.float64], sign: int) -> _Bytes:
    """Code of the nearest value for each number; ``sign`` is the bit of negative ones."""
    codes: NDArray[np.int64] = np.abs(np.abs(wanted)[:, None] - values).argmin(1)
    return (codes + sign * (wanted < 0)).astype(np.uint8)


@cache
def _e2m1_codes() -> _Bytes:
    return _nearest_codes(_quantiles(16) * _E2M1_SPREAD, _E2M1, 8)


@cache
def _e2m1_pairs() -> _Bytes:
    codes, byte = _e2m1_codes(), np.arange(256)
    pairs: _Bytes = codes[byte & 15] | (codes[byte >> 4] << 4)
    return pairs


@cache
def _e4m3_codes() -> _Bytes:
    return _nearest_codes(_quantiles(256) * _E4M3_SPREAD, _e4m3_values(), 0x80)


@cache
def _e4m3_values() -> NDArray[np.float64]:
    """The magnitudes of codes 0 to 0x7e; 0x7f is NaN and never drawn."""
    code = np.arange(0x7F)
    exponent, mantissa = code >> 3, code & 7
    normal = (8 + mantissa) * 2.0 ** (exponent - 10.0)
    values: NDArray[np.float64] = np.where(exponent == 0, mantissa * 2.0**-9, normal)
    return values
