"""The split on the device: the worked example, the rule by definition, the split on the host."""

from collections.abc import Sequence

import pytest
import torch
from deepinfer_core.engine.drafts.open_rows import Left, OpenRows
from deepinfer_core.engine.drafts.shared_rows import SharedRows, split_rows
from deepinfer_core.engine.packed_step import PackedStep
from deepinfer_core.interfaces.draft_planner import DraftView
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.reference.device import build_cpu
from deepinfer_core.schedule.plan import UNKNOWN_TOKEN, SequenceStep, StepPlan
from deepinfer_core.schedule.speculation import split
from deepinfer_core.schedule.speculation_bias import SurvivalBias
from hypothesis import given
from hypothesis import strategies as st

BLOCKS = ((0.95, 0.9, 0.9, 0.8, 0.8), (0.0,) * 5, (0.9, 0.8, 0.7, 0.6, 0.5))
"""The second sequence has no drafts that could be accepted."""


def rows(
    blocks: Sequence[Sequence[float]],
    total: int,
    most: Sequence[int] | None = None,
    factors: Sequence[float] | None = None,
) -> list[int]:
    drafts = len(blocks[0])
    found = split_rows(
        torch.tensor(blocks),
        torch.tensor(most or [1 + drafts] * len(blocks)),
        total,
        torch.tensor(factors or [1.0] * drafts),
    )
    return found.tolist()


@pytest.mark.parametrize(
    ("total", "expected"), [(3, [1, 1, 1]), (9, [5, 1, 3]), (15, [6, 3, 6]), (18, [6, 6, 6])]
)
def test_the_worked_example(total: int, expected: list[int]) -> None:
    assert rows(BLOCKS, total) == expected


def test_nobody_gets_more_than_it_can_feed() -> None:
    assert rows(BLOCKS, 9, most=[2, 6, 6]) == [2, 1, 6]
    assert rows(BLOCKS, 8, most=[1, 6, 1]) == [1, 6, 1]


def test_survival_is_corrected_by_the_factors() -> None:
    """What the second drafts are worth is a tenth: three first ones go before them."""
    good = [(0.9, 0.9), (0.9, 0.9), (0.2, 0.2)]
    assert rows(good, 6) == [3, 2, 1]
    assert rows(good, 6, factors=[1.0, 0.1]) == [2, 2, 2]


def test_corrected_survival_never_rises_along_a_block() -> None:
    """0.4 and 0.36 * 2.5, which counts as 0.4: the other's 0.5 goes first."""
    assert rows([(0.4, 0.9), (0.5, 0.0)], 3, factors=[1.0, 2.5]) == [1, 2]


def test_equal_drafts_go_to_the_earlier_sequence_and_then_the_earlier_draft() -> None:
    same = [(1.0, 1.0), (1.0, 1.0)]
    assert [rows(same, total) for total in range(2, 7)] == [
        [1, 1], [2, 1], [3, 1], [3, 2], [3, 3],
    ]  # fmt: skip


eighth = st.integers(0, 8).map(lambda n: n / 8)
"""Products of four are exact in fp32 as in fp64, so that ties are ties everywhere."""

Case = tuple[list[list[float]], list[int], int]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    drafts, count = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    block = st.lists(eighth, min_size=drafts, max_size=drafts)
    blocks = draw(st.lists(block, min_size=count, max_size=count))
    room = st.integers(1, 1 + drafts)
    most = draw(st.lists(room, min_size=count, max_size=count))
    return blocks, most, draw(st.integers(count, sum(most)))


@given(cases())
def test_rows_sum_up_to_the_total(case: Case) -> None:
    blocks, most, total = case
    found = rows(blocks, total, most)
    assert sum(found) == total
    assert all(1 <= each <= limit for each, limit in zip(found, most, strict=True))


@given(cases(), st.lists(st.sampled_from([0.25, 0.5, 1.0, 2.0]), min_size=4, max_size=4))
def test_it_splits_as_the_host_would(case: Case, factors: list[float]) -> None:
    """With survival corrected as the host corrects it; all numbers are exact in fp32."""
    blocks, most, total = case
    drafts = len(blocks[0])
    bias = SurvivalBias(drafts)
    bias._places.ratios = factors[:drafts]
    survival = torch.tensor(blocks, dtype=torch.float64).cumprod(1).tolist()
    views = [
        DraftView(limit - 1, bias.corrected(each))
        for limit, each in zip(most, survival, strict=True)
    ]
    assert rows(blocks, total, most, factors[:drafts]) == list(split(views, total))


def test_survival_is_multiplied_from_left_to_right_in_single_precision() -> None:
    """The third survivals differ by one rounding; in another order the second would be larger."""
    blocks = torch.rand((64, 5), generator=torch.Generator().manual_seed(1))
    survival = blocks.numpy().copy()
    for draft in range(1, 5):
        survival[:, draft] = survival[:, draft] * survival[:, draft - 1]
    order = sorted(range(64 * 5), key=lambda c: -survival.flatten()[c])
    most_Q, factor_n = torch.full((64,), 6), torch.ones(5)
    for total in range(64, 64 * 6 + 1, 17):
        expected = [1] * 64
        for place in order[: total - 64]:
            expected[place // 5] += 1
        assert split_rows(blocks, most_Q, total, factor_n).tolist() == expected


def test_shared_rows_feed_the_drafts_of_those_who_got_them() -> None:
    """Planned as 3 and 1; the second has the better drafts and gets 1 and 3.

    Both verified a draft in the step before: the first kept none, the second its one.
    """
    device = build_cpu(None, BuildContext(device="cpu", needs=ModelNeeds()))

    def step(place: int, start: int, count: int, **rest: int) -> SequenceStep:
        return SequenceStep(
            sequence_id=place, start=start, token_ids=(UNKNOWN_TOKEN,) * count,
            history=(-1, -1, -1), block_ids=(place,), state_slot=place, wants_token=True,
            scored_rows=count - 1, place=place, most_rows=4, **rest,
        )  # fmt: skip

    first, second = (
        step(place, start, 2)._replace(token_ids=(10 * place, 10 * place + 1), history=(9, 8, 7))
        for place, start in ((1, 100), (2, 50))
    )
    packed = PackedStep(StepPlan((first, second)), device)
    left = Left(
        inputs=packed.inputs(packed.bring(None)),
        row_R=torch.arange(4),
        token_R=torch.tensor([77, 0, 21, 88]),
        accepted_R=torch.tensor([False, False, True, False]),
    )
    plan = StepPlan(
        (
            step(1, 102, 3, drawn_index=0, open_rows=1),
            step(2, 52, 1, drawn_index=2, open_rows=1),
        ),
        shares=(1.0, 1.0, 1.0),
    )
    shared = SharedRows(plan, (1.0, 1.0, 1.0), device)
    assert shared.rows() == (3, 1)
    rows_Q = shared.settle(torch.tensor([[1.0] * 3, [0.5] * 3, [0.9] * 3]))
    assert shared.rows() == (1, 3)
    packed = PackedStep(plan, device)
    found = packed.inputs(packed.bring(None))
    draft_Sn = torch.tensor([[-1, -1, -1], [31, 32, 33], [41, 42, 43]])
    OpenRows(plan, device).settle(found, left, draft_Sn, rows_Q)
    assert found.token_T.tolist() == [77, 88, 41, 42]
    assert found.position_T.tolist() == [101, 52, 53, 54]
    assert found.sequence_T.tolist() == [0, 1, 1, 1]
    assert found.start_Q.tolist() == [101, 52]
    assert found.row_count_Q.tolist() == [1, 3]
    assert found.previous_T3.tolist() == [[10, 9, 8], [21, 20, 9], [88, 21, 20], [41, 88, 21]]
