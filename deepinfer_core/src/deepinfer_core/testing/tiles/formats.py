"""How is each number format of the tile language held in numpy, and how is it rounded to?

Every format is one numpy dtype (``ml_dtypes`` supplies the narrow ones), one element a cell. Casts
follow the device: round to nearest even, saturate into the narrow floating formats, round the
power-of-two format upwards, truncate towards zero and saturate into integers.
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepinfer_core.testing.tiles.faults import UnknownTileOperation

__all__ = [
    "cast",
    "element",
    "is_python_int",
    "is_register",
    "lanes_of",
    "numpy_dtype",
    "reinterpret",
    "scalar",
    "wrap",
]

Array = NDArray[Any]

PLAIN = {
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64",
}  # fmt: skip
NARROW = {
    "bfloat16": "bfloat16",
    "float8_e4m3fn": "float8_e4m3fn",
    "float8_e5m2": "float8_e5m2",
    "float8_e8m0fnu": "float8_e8m0fnu",
    "float4_e2m1fn": "float4_e2m1fn",
}
LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0, "float4_e2m1fn": 6.0}
PYTHON_INTS = {"int32": 32, "int64": 64}
"""Uniform values of these formats are Python integers: they are what indices are made of."""


@cache
def lanes_of(name: str) -> int:
    """How many elements a format has: 2 for ``bfloat16x2``."""
    head, found, count = name.rpartition("x")
    return int(count) if found and head and count.isdigit() else 1


def element(name: str) -> str:
    """The format of one element."""
    return name.rpartition("x")[0] if lanes_of(name) > 1 else name


def is_register(name: str) -> bool:
    """Whether a format fills a SIMD register of 256 bytes."""
    return lanes_of(name) * numpy_dtype(name).itemsize == 256


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype that holds one element of format ``name`` (``float32x2`` holds float32).

    Raises:
        UnknownTileOperation: no such format.
    """
    if lanes_of(name) > 1:
        return numpy_dtype(element(name))
    if name in PLAIN:
        return np.dtype(name)
    if name in NARROW:
        import ml_dtypes

        narrow: np.dtype[Any] = np.dtype(getattr(ml_dtypes, NARROW[name]))
        return narrow
    raise UnknownTileOperation(name, "no such number format")


def is_python_int(name: str) -> bool:
    """Whether a uniform value of this format is carried as a Python integer."""
    return name in PYTHON_INTS


def wrap(value: int, name: str) -> int:
    """``value`` modulo the width of a signed format, as the device's adder leaves it."""
    half = 1 << (PYTHON_INTS[name] - 1)
    return (value + half) % (2 * half) - half


def cast(value: Any, name: str) -> Any:
    """``value`` (an array or a scalar) converted to format ``name`` as the device converts it."""
    if isinstance(value, np.ndarray) and value.ndim:
        return cast_array(value, name)
    if name in PYTHON_INTS and isinstance(value, (int, np.integer, np.bool_)):
        integer = int(value)
        return integer if -(1 << 31) <= integer < 1 << 31 else wrap(integer, name)
    array = np.asarray(value)
    return scalar(cast_array(array.reshape(1), name)[0], name)


def scalar(value: Any, name: str) -> Any:
    """A numpy scalar in the form in which uniform values of its format are carried."""
    return int(value) if name in PYTHON_INTS else value


def cast_array(array: Array, name: str) -> Array:
    name = element(name)
    target = numpy_dtype(name)
    source = array.dtype
    if source == target:
        return array
    if target.kind == "b":
        return np.asarray(array != np.zeros((), source))
    if name == "float8_e8m0fnu":
        return to_power_of_two(array, target)
    if name in LARGEST:
        return saturate(array, name, target)
    if target.kind in "iu" and source.kind not in "iub":
        return to_integer(array, target)
    converted: Array = array.astype(target)
    return converted


def saturate(array: Array, name: str, target: np.dtype[Any]) -> Array:
    wide = array.astype(np.float64 if array.dtype == np.float64 else np.float32)
    limit = LARGEST[name]
    wide = np.clip(wide, -limit, limit)
    if name == "float4_e2m1fn":
        wide = np.where(np.isnan(wide), np.float32(limit), wide)
    return wide.astype(target)


def to_power_of_two(array: Array, target: np.dtype[Any]) -> Array:
    """Round upwards to a power of two between 2^-127 and 2^127; the sign is dropped."""
    wide = np.abs(array.astype(np.float64))
    mantissa, exponent = np.frexp(wide)
    power = np.where(mantissa == 0.5, exponent - 1, exponent)
    byte = np.clip(np.where(wide == 0, -127, power) + 127, 0, 254)
    byte = np.where(np.isinf(wide), 254, byte)
    return np.asarray(np.where(np.isnan(wide), 255, byte).astype(np.uint8).view(target))


def to_integer(array: Array, target: np.dtype[Any]) -> Array:
    """Truncate towards zero, saturate at the ends, and turn NaN into zero."""
    limits = np.iinfo(target)
    wide = np.trunc(array.astype(np.float64))
    inside = np.nan_to_num(wide, nan=0.0, posinf=np.inf, neginf=-np.inf)
    low, high = inside <= float(limits.min), inside >= float(limits.max)
    result = np.where(low | high, 0.0, inside).astype(target)
    return np.where(low, target.type(limits.min), np.where(high, target.type(limits.max), result))


def reinterpret(value: Any, source: str, name: str) -> Any:
    """The bits of ``value`` read as another format of the same width."""
    origin, target = numpy_dtype(source), numpy_dtype(name)
    if origin.itemsize != target.itemsize:
        raise UnknownTileOperation("reinterpret", f"{source} to {name} changes the width")
    array = np.asarray(value, dtype=origin)
    if array.ndim == 0:
        return scalar(array.reshape(1).view(target)[0], name)
    return np.ascontiguousarray(array).view(target)
