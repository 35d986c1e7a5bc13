"""Does the selection mask follow the order rule: score, then index, never minus infinity?"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[3] / "plugins" / "deepinfer_tiny"))

from training.selection import top_mask

NONE = -torch.inf


@pytest.mark.parametrize(
    ("k", "expected"),
    [
        (1, [0, 0, 0, 0, 1, 0]),
        (2, [0, 1, 0, 0, 1, 0]),
        (3, [0, 1, 1, 0, 1, 0]),
        (5, [1, 1, 1, 1, 1, 0]),
        (6, [1, 1, 1, 1, 1, 0]),
    ],
)
def test_ties_go_to_the_lower_index_and_minus_infinity_is_never_taken(k, expected) -> None:
    score = torch.tensor([-1.0, 0.0, 0.0, -0.5, 2.0, NONE])
    assert top_mask(score, k).int().tolist() == expected


def test_a_row_without_entries_selects_nothing() -> None:
    assert not top_mask(torch.full((2, 4), NONE), 3).any()
