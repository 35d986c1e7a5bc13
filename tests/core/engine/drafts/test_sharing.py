"""Rows that the device shares out: which steps, and do the books agree afterwards?"""

from collections.abc import Callable
from typing import Any

import pytest
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.drafts.host import Drafting
from deepinfer_core.engine.prefix_reuse import ReusePolicy
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.schedule.plan import StepPlan
from deepinfer_core.testing.draft_budgets import RandomBudget
from deepinfer_core.testing.fake_draws import FakeGuesses
from deepinfer_core.testing.fake_runner import FakeRunner

MakeEngine = Callable[..., Engine]
VOCABULARY, BLOCK, DRAFTS = 265, 4, 5
FACTORS = (1.0,) * DRAFTS
ALONE = ReusePolicy(block_tokens=BLOCK, is_enabled=False)
"""States are copied at every fourth token otherwise, and such a step is as planned."""


class Sharing(FakeRunner):
    """Remembers the plans as the host made them."""

    def __init__(self) -> None:
        super().__init__(VOCABULARY, BLOCK, guesses=FakeGuesses(DRAFTS, VOCABULARY))
        self.planned: list[StepPlan] = []

    def launch(self, plan: StepPlan, before: Any) -> Any:
        self.planned.append(plan)
        return super().launch(plan, before)


class Scattered(RandomBudget):
    """Any split, and a round behind every step."""

    def drafts_next(self) -> bool:
        return True


def answers(engine: Engine) -> list[tuple[int, ...]]:
    """Texts of several lengths, which come and go, each as often as another."""
    found: dict[int, tuple[int, ...]] = {}
    for number in range(12):
        params = SamplingParams(seed=number, max_tokens=6 + 5 * (number % 4), temperature=1)
        engine.submit(number, [3 + number] * (2 + 3 * (number % 5)), params)
    while len(engine.batch):
        for update in engine.step():
            if update.delta.completion is not None:
                found[update.delta.index] = update.delta.completion.token_ids
        engine.check_integrity()
    return [found[number] for number in range(12)]


@pytest.fixture
def plain(make_engine: MakeEngine) -> list[tuple[int, ...]]:
    return answers(make_engine(rows=24))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("blocks", [28, 64])
def test_answers_do_not_depend_on_who_gets_the_rows(
    make_engine: MakeEngine, plain: list[tuple[int, ...]], seed: int, blocks: int
) -> None:
    """Small blocks, so that some sequence has no block for all that it could get; or too few."""
    runner = Sharing()
    drafting = Drafting(DRAFTS, Scattered(seed, FACTORS))
    engine = make_engine(rows=24, runner=runner, drafting=drafting, blocks=blocks, policy=ALONE)
    assert answers(engine) == plain
    moved = [
        [len(step.token_ids) for step in planned.sequences]
        != [len(step.token_ids) for step in done.sequences]
        for planned, done in zip(runner.planned, runner.plans, strict=True)
    ]
    assert sum(moved) > 3


def shared_plans(make_engine: MakeEngine, shares: Any = FACTORS, **options: Any) -> list[StepPlan]:
    runner = Sharing()
    drafting = Drafting(DRAFTS, Scattered(1, shares))
    options = {"policy": ALONE, **options}
    answers(make_engine(rows=24, runner=runner, drafting=drafting, **options))
    return [plan for plan in runner.planned if plan.shares is not None]


def test_rows_are_shared_out_among_open_ones_that_have_room(make_engine: MakeEngine) -> None:
    plans = shared_plans(make_engine)
    assert plans
    for plan in plans:
        assert plan.shares == FACTORS
        assert not plan.saved_slots
        for step in plan.sequences:
            assert set(step.token_ids) == {-1}
            assert len(step.token_ids) <= step.most_rows <= 1 + DRAFTS
            assert step.start + step.most_rows <= BLOCK * len(step.block_ids)
        assert len(plan.sequences) < plan.rows < sum(step.most_rows for step in plan.sequences)


def test_rows_are_shared_out_only_if_the_planner_says_so(make_engine: MakeEngine) -> None:
    assert not shared_plans(make_engine, shares=None)


def test_a_step_whose_drafts_are_known_is_as_planned(make_engine: MakeEngine) -> None:
    assert not shared_plans(make_engine, asynchronous=False)


def test_a_step_that_copies_states_is_as_planned(make_engine: MakeEngine) -> None:
    """What it copies was chosen by the rows that the host planned."""
    reusing = ReusePolicy(block_tokens=BLOCK, window_tokens=BLOCK, layers=2)
    assert not any(plan.saved_slots for plan in shared_plans(make_engine, policy=reusing))


class Broken(Sharing):
    """The first step whose rows are shared out fails before that is done."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: Any = None
        self.before_step = self._fail

    def launch(self, plan: StepPlan, before: Any) -> Any:
        self._is_first = plan.shares is not None and self.failed is None
        step = super().launch(plan, before)
        if self._is_first:
            self.failed = step
        return step

    def shared_rows(self, step: Any) -> tuple[int, ...] | None:
        if step is self.failed:
            raise ValueError("no")
        return super().shared_rows(step)

    def _fail(self, plan: StepPlan) -> None:
        if self._is_first:
            raise ValueError("no")


def test_a_sharing_that_fails_ends_the_sequences_of_its_step_and_no_other(
    make_engine: MakeEngine, plain: list[tuple[int, ...]]
) -> None:
    runner = Broken()
    drafting = Drafting(DRAFTS, Scattered(1, FACTORS))
    found = answers(make_engine(rows=24, runner=runner, drafting=drafting, policy=ALONE))
    assert runner.failed is not None
    same = [got == want for got, want in zip(found, plain, strict=True)]
    assert same.count(False) in range(1, 5)
