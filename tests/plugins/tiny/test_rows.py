"""Do documents reach the training rows whole, aligned and as varied as asked?"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "plugins" / "deepinfer_tiny"))

from training import generators
from training.rows import ALIGNMENT, filled_rows, pack

PAD = 9


def packed(lengths: list[int], row_tokens: int) -> tuple[np.ndarray, np.ndarray]:
    aligned = [-(-n // ALIGNMENT) * ALIGNMENT for n in lengths]
    plan = pack(aligned, list(range(len(lengths))), row_tokens)
    tokens = np.concatenate([np.full(n, 100 + i) for i, n in enumerate(lengths)])
    return filled_rows(tokens, np.array(lengths), plan, row_tokens, PAD)


@pytest.mark.parametrize("first", [1, ALIGNMENT - 1, ALIGNMENT, ALIGNMENT + 1, 64])
def test_every_document_is_whole_and_starts_at_a_multiple_of_the_alignment(first) -> None:
    lengths = [first, 30, 5, 64, 17]
    rows, owner = packed(lengths, 64)
    for i, n in enumerate(lengths):
        where = np.argwhere(owner == i)
        assert len(where) == n
        assert len(set(where[:, 0])) == 1
        assert where[0, 1] % ALIGNMENT == 0
        assert (rows[owner == i] == 100 + i).all()
    assert (rows[owner == -1] == PAD).all()


def test_a_document_longer_than_a_row_is_an_error() -> None:
    with pytest.raises(ValueError, match="longer than a row of 64"):
        pack([72], [0], 64)


def test_a_retold_story_changes_names_alike_in_all_places() -> None:
    story = "Lily saw a red ball. Lily ran. Tim saw Lily."
    names = set()
    for seed in range(20):
        words = generators.retold(random.Random(seed), story).replace(".", "").split()
        assert words[0] == words[5] == words[9]
        assert words[7] != words[0]
        assert words[1:3] == ["saw", "a"]
        names.add(words[0])
    assert len(names) > 3


def test_a_request_asks_for_the_story_that_answers_it() -> None:
    story = "Once a dog had a kite. The dog was happy with the kite."
    asked = generators.story_request(random.Random("request"), story)
    assert asked["messages"][-1]["content"] == story
    assert asked["messages"][-1]["role"] == "assistant"
    assert "story" in asked["messages"][-2]["content"].lower()


def test_joined_pieces_skip_what_is_held_out() -> None:
    assert generators.joined(["a", "b", None, "c"], letters=100) == ["a\n\nb", "c"]
