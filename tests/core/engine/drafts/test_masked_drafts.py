"""Which drafts does a grammar read, and which rows does it mask?"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from deepinfer_core.engine.grammar_masks import Grammars
from deepinfer_core.engine.rows import RowRequest, RowSettings


class Noting:
    """A constraint that writes how many drafts it has read into a mask."""

    is_settled, failure = True, None

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.forgot = 0

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
