"""At which numbers of rows are the model's matrix products timed?

Widths are those of DeepSeek-V4.1-Flash; row counts are those of decode steps, of steps that verify
drafts, and of prompts. Each is a whole product with weights of its own, so every one takes seconds
to check: there is one for each way in which a load can meet a tile, no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

__all__ = ["DENSE_LOADS", "EXPERT_LOADS", "ends_of"]

DENSE_LOADS: Sequence[tuple[int, int, int, str]] = (
    # rows, input width, output width, result
    (64, 4096, 4096, "bfloat16"),
    (96, 5120, 4608, "float32"),
    (128, 5120, 4608, "float32"),
    (512, 1280, 32768, "bfloat16"),
    (96, 8192, 5120, "bfloat16"),
    (128, 8192, 5120, "bfloat16"),
    (16, 2304, 5120, "bfloat16"),
    (64, 2304, 5120, "bfloat16"),
    (128, 2304, 5120, "bfloat16"),
    (512, 5120, 512, "bfloat16"),
)

_EXPERTS = 7
_WIDTHS = ((5120, 4608), (2304, 5120))


def ends_of(fewest: int, most: int, experts: int = _EXPERTS) -> list[int]:
    """Where the rows of each expert end; their numbers are drawn between two, always alike.

    Args:
        fewest: rows of an expert.
        most: rows of an expert.
        experts: how many there are.
    """
    draw, ends = Random(most), [0]
    for _ in range(experts):
        ends.append(ends[-1] + draw.randint(fewest, most))
    return ends[1:]


_ROWS = ((1, 1), (8, 8), (32, 32), (128, 128), (1, 129))
"""Fewest and most of an expert."""

EXPERT_LOADS: Sequence[tuple[list[int], int, int]] = tuple(
    (ends_of(fewest, most), in_width, out_width)
    for fewest, most in _ROWS
    for in_width, out_width in _WIDTHS
)
"""Rows of seven experts: as many each, as in a decode step or a prompt, or by chance."""
