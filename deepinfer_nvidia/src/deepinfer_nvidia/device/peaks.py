"""How fast could this GPU multiply matrices, by its maker's data sheet?

Dense rates of tensor cores, without sparsity, at the clock that the maker states. A name that is
not listed has no rate: an arithmetic guess from clocks would be wrong by the power limit.

Source: NVIDIA data sheets of H100, H200, GH200 and B200.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["peak_flops"]

_SXM = {"bfloat16": 989.4e12, "float16": 989.4e12, "float8_e4m3fn": 1978.9e12}
_PCIE = {"bfloat16": 756.0e12, "float16": 756.0e12, "float8_e4m3fn": 1513.0e12}
_NVL = {"bfloat16": 835.5e12, "float16": 835.5e12, "float8_e4m3fn": 1671.0e12}
_B200 = {"bfloat16": 2250.0e12, "float16": 2250.0e12, "float8_e4m3fn": 4500.0e12}

# The first name that the device's name contains counts.
_RATES: tuple[tuple[str, Mapping[str, float]], ...] = (
    ("H100 PCIe", _PCIE),
    ("H100 NVL", _NVL),
    ("H200 NVL", _NVL),
    ("H100", _SXM),
    ("H200", _SXM),  # GH200 too
    ("B200", _B200),
)


def peak_flops(model: str, number_format: str) -> float | None:
    """Operations a second, or None where the data sheet says nothing.

    Args:
        model: the device's own name, e.g. ``NVIDIA H200``.
        number_format: of both factors; sums are fp32.
    """
    rates = next((rates for name, rates in _RATES if name in model), None)
    return None if rates is None else rates.get(number_format)
