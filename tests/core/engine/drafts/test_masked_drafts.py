"""Which drafts does a grammar read, which rows does it mask, and which drafts does it drop?"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from deepinfer_core.engine.grammar_masks import Grammars
from deepinfer_core.engine.rows import RowRequest, RowSettings


class Noting:
    """A constraint that writes how many drafts it has read into a mask."""

    is_settled, excess_s = True, 0.0

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.forgot = 0

    def settle(self) -> None:
        """Nothing is wrong with it."""

    def read(self, tokens: Any, first: int) -> None:
        assert tokens[first:] == [5, 6]

    def fill(self, mask_RW: Any, row: int) -> None:
        mask_RW[row] = len(self.asked)

    def draft(self, token: int) -> bool:
        self.asked.append(token)
        return True

    def forget_drafts(self) -> None:
        self.forgot += 1


def masked(drafts: list[int]) -> tuple[Noting, list[Any]]:
    """Masks of a row in front of a text, and of a text with so many drafts behind it."""
    pool: Any = SimpleNamespace(vocabulary=SimpleNamespace(words=2))
    constraint = Noting()
    free: Any = SimpleNamespace(constraint=None, prompt_tokens=1)
    bound: Any = SimpleNamespace(constraint=constraint, prompt_tokens=1, tokens=[4, 5, 6])
    rows = [RowRequest(0, 9, RowSettings())]
    rows += [
        RowRequest(1 + number, 3 + number, RowSettings(), draft=draft)
        for number, draft in enumerate([*drafts, -1])
    ]
    owners = [free] + [bound] * (len(rows) - 1)
    found, broken = Grammars(pool).masked(tuple(rows), owners)
    assert not broken
    return constraint, [row.mask if row.mask is None else row.mask.tolist() for row in found]


@pytest.mark.parametrize("drafts", [[], [7], [7, 8, 9]])
def test_each_row_has_the_mask_behind_the_drafts_before_it(drafts: list[int]) -> None:
    constraint, masks = masked(drafts)
    assert constraint.asked == drafts
    assert constraint.forgot == bool(drafts)
    assert masks == [None, *([number] * 2 for number in range(len(drafts) + 1))]


@pytest.mark.parametrize(("drafts", "known"), [([-1, -1], 0), ([7, -1, -1], 1)])
def test_a_grammar_reads_no_draft_that_is_none(drafts: list[int], known: int) -> None:
    constraint, masks = masked(drafts)
    assert constraint.asked == drafts[:known]
    everything = np.full(2, -1).tolist()
    assert masks[2 + known :] == [everything] * (len(drafts) - known)


class Allowing(Noting):
    """A constraint that allows small tokens, and breaks at 99."""

    def draft(self, token: int) -> bool:
        if token == 99:
            raise ValueError("a bug")
        return super().draft(token) and token < 10


def drafting(*ids: int, **more: Any) -> Any:
    drafts = SimpleNamespace(ids=ids)
    text = {"constraint": Allowing(), "drafts": drafts, "sequence_id": 3, "prompt_tokens": 1}
    return SimpleNamespace(**{"tokens": [4, 5, 6], **text, **more})


@pytest.mark.parametrize(
    ("ids", "match", "ratio"),
    [
        ((), (), ()),
        ((7,), (7,), (7,)),
        ((70,), (), (70,)),
        ((7, 70, 8), (7,), (7, 70)),
        ((7, 8, 9), (7, 8, 9), (7, 8, 9)),
    ],
)
def test_drafts_behind_one_that_is_not_allowed_are_dropped(
    ids: tuple[int, ...], match: tuple[int, ...], ratio: tuple[int, ...]
) -> None:
    # Under the ratio rule that one is verified: it would change the law of the output to draw in
    # its place what is drawn where nothing was drafted.
    left = {"match": match, "ratio": ratio}
    for rule in ("match", "ratio"):
        text = drafting(*ids)
        Grammars().cut_drafts([text], rule)  # type: ignore[arg-type]
        assert text.drafts.ids == left[rule]
        assert text.constraint.forgot == bool(ids)


def test_drafts_of_a_sequence_without_a_grammar_stay() -> None:
    text = drafting(70, 99, constraint=None)
    Grammars().cut_drafts([text], "match")
    assert text.drafts.ids == (70, 99)


def test_a_grammar_that_fails_at_a_draft_fails_its_sequence_alone_and_once() -> None:
    grammars = Grammars(SimpleNamespace())  # type: ignore[arg-type]
    good, bad = drafting(7, 70, sequence_id=1), drafting(7, 99, sequence_id=2)
    grammars.cut_drafts([bad, good], "match")
    assert good.drafts.ids == (7,)
    [(sequence, failure)] = grammars.failed([good, bad])
    assert sequence is bad
    assert "ValueError: a bug" in failure.message
    assert grammars.failed([good, bad]) == []
