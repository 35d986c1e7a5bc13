"""The split on the device: the worked example, the rule by definition, the split on the host."""

from collections.abc import Sequence

import pytest
import torch
from deepinfer_core.interfaces.draft_planner import DraftView
from deepinfer_core.schedule.speculation import split
from deepinfer_dspark.split import split_rows
from hypothesis import given
from hypothesis import strategies as st

BLOCKS = ((0.9, 0.8, 0.7, 0.6, 0.5), (0.5,) * 5, (0.95, 0.9, 0.9, 0.8, 0.8))


def rows(blocks: Sequence[Sequence[float]], remap: Sequence[int], total: int) -> list[int]:
    return split_rows(torch.tensor(blocks), torch.tensor(remap), total).tolist()


@pytest.mark.parametrize(
    ("total", "expected"), [(3, [1, 1, 1]), (9, [5, 1, 3]), (15, [6, 3, 6]), (18, [6, 6, 6])]
)
def test_the_worked_example(total: int, expected: list[int]) -> None:
    """The first sequence continues the third of the step before, the second is new."""
    assert rows(BLOCKS, [2, -1, 0], total) == expected


def test_a_total_that_only_the_device_knows_is_taken_as_a_tensor() -> None:
    found = split_rows(torch.tensor(BLOCKS), torch.tensor([2, -1, 0]), torch.tensor(9))
    assert found.tolist() == [5, 1, 3]


def test_equal_drafts_go_to_the_earlier_sequence_and_then_the_earlier_draft() -> None:
    same = [(1.0, 1.0), (1.0, 1.0)]
    assert [rows(same, [0, 1], total) for total in range(2, 7)] == [
        [1, 1], [2, 1], [3, 1], [3, 2], [3, 3],
    ]  # fmt: skip


def by_definition(blocks: Sequence[Sequence[float]], remap: Sequence[int], total: int) -> list[int]:
    """Rank of a draft: how many survive better, or as well and have a smaller number."""
    drafts = len(blocks[0])
    survival: list[float] = []
    for row in remap:
        reach = 1.0
        for draft in range(drafts):
            reach *= blocks[row][draft] if row >= 0 else 0.0
            survival.append(reach)
    found = []
    for number in range(len(remap)):
        mine = range(number * drafts, (number + 1) * drafts)
        ranks = [
            sum(v > survival[me] or (v == survival[me] and o < me) for o, v in enumerate(survival))
            for me in mine
        ]
        found.append(1 + sum(rank < total - len(remap) for rank in ranks))
    return found


eighth = st.integers(0, 8).map(lambda n: n / 8)
"""Products of four are exact in fp32 as in fp64, so that ties are ties everywhere."""


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[list[float]], list[int], int]:
    drafts = draw(st.integers(1, 4))
    before = draw(st.integers(1, 5))
    block = st.lists(eighth, min_size=drafts, max_size=drafts)
    blocks = draw(st.lists(block, min_size=before, max_size=before))
    remap = draw(st.lists(st.integers(-1, before - 1), min_size=1, max_size=6))
    return blocks, remap, draw(st.integers(len(remap), len(remap) * (1 + drafts)))


@given(cases())
def test_it_is_the_rule_by_definition(case: tuple[list[list[float]], list[int], int]) -> None:
    assert rows(*case) == by_definition(*case)


@given(cases())
def test_rows_sum_up_to_the_total(case: tuple[list[list[float]], list[int], int]) -> None:
    found = rows(*case)
    assert sum(found) == case[2]
    assert all(1 <= each <= 1 + len(case[0][0]) for each in found)


@given(cases())
def test_it_splits_as_the_host_would(case: tuple[list[list[float]], list[int], int]) -> None:
    blocks, remap, total = case
    drafts = len(blocks[0])
    survival = torch.tensor(blocks, dtype=torch.float64).cumprod(1).tolist()
    views = [DraftView(drafts, survival[row] if row >= 0 else (0.0,) * drafts) for row in remap]
    assert rows(*case) == list(split(views, total))


def test_survival_is_multiplied_from_left_to_right_in_single_precision() -> None:
    """The third survivals differ by one rounding; in another order the second would be larger."""
    blocks = torch.rand((64, 5), generator=torch.Generator().manual_seed(1))
    survival = blocks.numpy().copy()
    for draft in range(1, 5):
        survival[:, draft] = survival[:, draft] * survival[:, draft - 1]
    order = sorted(range(64 * 5), key=lambda c: -survival.flatten()[c])
    for total in range(64, 64 * 6 + 1, 17):
        expected = [1] * 64
        for place in order[: total - 64]:
            expected[place // 5] += 1
        assert split_rows(blocks, torch.arange(64), total).tolist() == expected
