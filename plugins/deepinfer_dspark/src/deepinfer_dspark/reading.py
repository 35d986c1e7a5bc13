"""What is taken from a file that anybody may have damaged?

Ordinary files only: a device may have no end. Numbers only where numbers are asked for, and finite
ones: JSON as Python reads it also has NaN, infinities and whole numbers that are no fp64.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

__all__ = ["DAMAGE", "check_ordinary", "finite", "read_ordinary"]

DAMAGE: Final = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""What is raised where JSON, or what it says, is not as it should be."""


def check_ordinary(path: Path) -> None:
    """See that a path is free or an ordinary file, without opening it.

    Raises:
        OSError: it is a device, a pipe or a folder.
    """
    if path.exists() and not path.is_file():
        raise OSError("that it is no ordinary file")


def read_ordinary(path: Path) -> str:
    """The text of an ordinary file.

    Raises:
        OSError: it is none, or cannot be read.
        ValueError: it is no UTF-8.
    """
    check_ordinary(path)
    return path.read_text(encoding="utf-8")


def finite(value: object) -> float:
    """A number of JSON.

    Raises:
        ValueError: it is none, or no fp64 has its size.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r:.40} where a number should be")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError("a number that is not finite")
    return number
