"""The planner's memory: costs from steps, means of blocks, and whether drafting pays."""

import sys
from pathlib import Path

import pytest
from deepinfer_core.interfaces.draft_planner import DraftOutcome, DraftView, StepTimes

sys.path.insert(0, str(Path(__file__).parent))
from planner_loop import BAD, BARE, GOOD, SLOW, TIMES, Loop, planner


def test_rows_are_planned_with_the_measured_costs() -> None:
    """1.9 / 10.5 and 2.7 / 11 and with a round of 1 ms more: 3 rows are the best."""
    assert list(planner().rows([GOOD], other_rows=0)) == [3]
    assert list(planner({1: 10.0, 2: 10.5, 3: 21.0, 6: 26.0}).rows([GOOD], other_rows=0)) == [2]


def test_rows_are_planned_with_what_steps_took_lately() -> None:
    """Steps of 3 rows take 20 ms, not 11, and those of 2 what was measured."""
    loop = Loop(planner(), DraftView(2, (0.9, 0.0), (0.9, 0.0)), {**TIMES, 3: 20.0})
    assert loop.usual(100) == (2, True)
    loop.view = GOOD
    assert loop.usual(100) == (2, True)
    assert Loop(planner(), GOOD).usual(100) == (3, True)


def test_what_rounds_take_is_learned_from_steps() -> None:
    """Measured 1 ms, now 30: 1.9 tokens in 10.5 ms become 1.9 in 40.5, against 1 in 10."""
    half = DraftView(2, (0.9, 0.0), (0.9, 0.0))
    assert Loop(planner(), half, round_ms=30.0).usual(100) == (1, False)
    assert Loop(planner(), half).usual(100) == (2, True)


def test_a_step_that_prompts_make_long_anyway_is_no_reason_to_stop() -> None:
    """100 ms with prompts, 10 without: a round of 1 ms wins 0.1 tokens of 100 ms each."""
    made = planner({1: 10.0, 2: 10.5, 3: 11.0, 60: 100.0, 90: 100.0})
    for _ in range(50):
        made.rows([BAD], other_rows=50)
        assert made.drafts_next()


def test_rows_go_where_drafts_are_known_to_be_good_before_where_they_are_like_all() -> None:
    """Two rows are cheap; a third is not."""
    made = planner({2: 10.0, 3: 10.0, 6: 90.0})
    for _ in range(5000):
        made.rows([BAD], other_rows=0)
    new, good = DraftView(2), DraftView(2, (0.5, 0.4), (0.5, 0.4))
    assert list(made.rows([new, good], other_rows=0)) == [1, 2]


def test_drafting_stops_where_it_does_not_pay() -> None:
    """A round takes 1 ms and wins 0.1 tokens in a step of 10 ms: just too little."""
    assert Loop(planner(), BAD).usual(100) == (1, False)
    assert Loop(planner(), GOOD).usual(100) == (3, True)


def test_sequences_that_happen_to_have_no_drafts_are_no_reason_to_stop() -> None:
    """The other one's are good, whatever newer ones have taught meanwhile."""
    made = planner()
    for _ in range(50):
        made.rows([DraftView(2, (0.0, 0.0), (0.9, 0.9)), BARE], other_rows=0)
        assert made.drafts_next()


def test_drafting_is_tried_again_now_and_then_and_verifies_something() -> None:
    """1.1 tokens in 11.5 ms lose 0.5 ms, four hundredths: each trial needs two pairs.

    Seven steps and a round of 1 ms in each cost 9 ms, which 2304 ms earn 256 times. In a pair two
    steps that are not timed and four that are verify, and a last one what is left then.
    """
    loop = Loop(planner(), BAD)
    loop.run(2000)
    found = loop.run(10_000)
    tried = [number for number, (rows, drafts) in enumerate(found) if rows > 1 or drafts]
    # 230 steps and the plain ones of a trial, and up to 16 as the planner rests.
    assert 10_000 / 262 <= len(tried) / 16 <= 10_000 / 240
    assert {found[number] for number in tried} == {(1, True), (2, True), (2, False)}


@pytest.mark.parametrize(
    ("view", "times", "most"), [(BAD, TIMES, 256), (GOOD, SLOW, 256), (GOOD, TIMES, 1024)]
)
def test_trials_cost_a_small_part_of_the_time(
    view: DraftView, times: dict[int, float], most: int
) -> None:
    """Of a trial the time counts for which decoding as usual would have given no token."""
    loop = Loop(planner(times), view, times)
    loop.run(5000)
    usual_rows, drafts = loop.usual(20)
    said = view.newest or ()

    def tokens(rows: int) -> float:
        return 1 + sum(said[: rows - 1])

    usual_ms = (times[usual_rows] + drafts) / tokens(usual_rows)
    took_ms = lost_ms = 0.0
    for rows, has_round in loop.run(20_000):
        step_ms = times[rows] + has_round
        took_ms += step_ms
        lost_ms += step_ms - usual_ms * tokens(rows)
    assert 0 < lost_ms < took_ms / most


def test_drafting_comes_back_when_blocks_look_better() -> None:
    loop = Loop(planner(), BAD)
    assert loop.usual(1000) == (1, False)
    loop.view = GOOD
    assert loop.usual(20_000) == (3, True)


def test_drafting_comes_back_when_the_load_makes_it_pay() -> None:
    """Two rows more cost 8 ms for one sequence and nothing for two."""
    times = {1: 2.0, 2: 10.0, 3: 10.0, 6: 10.0}
    loop = Loop(planner(times), DraftView(2, (0.5, 0.3), (0.5, 0.3)), times)
    assert loop.usual(1000) == (1, False)
    assert loop.usual(100, sequences=2) == (6, True)


def test_drafting_comes_back_when_larger_steps_turn_out_to_be_fast() -> None:
    """They were taken for three times as long as they are; trials verify in spite of that."""
    loop = Loop(planner(SLOW), GOOD, SLOW)
    assert loop.usual(60) == (1, False)
    loop.times = TIMES
    assert loop.usual(20_000) == (3, True)


def test_a_machine_that_gets_slower_changes_nothing() -> None:
    """All steps take twice as long, and half as long again, while only some are run."""
    for view, usual in ((BAD, (1, False)), (GOOD, (3, True))):
        loop = Loop(planner(), view)
        loop.run(500)
        for factor in (2.0, 1.0, 2.0, 1.0):
            loop.times = {rows: factor * one_ms for rows, one_ms in TIMES.items()}
            loop.round_ms = factor
            found = loop.run(60)
            assert found.count(usual) >= 40  # a trial may fall into them


def test_sequences_without_drafts_teach_nothing() -> None:
    made = planner()
    for _ in range(1000):
        made.rows([DraftView(0, (0.0, 0.0), (0.0, 0.0))], other_rows=0)
    # Both rates are still 1, so two rows more for 1 ms are worth it.
    assert list(made.rows([DraftView(2)], other_rows=0)) == [3]


def test_a_step_is_not_planned_with_the_mean_of_its_own_blocks() -> None:
    """With rates of 1, as nothing is known, 6 tokens in 21 ms beat 3 in 11; with less not."""
    made = planner({2: 10.0, 3: 10.0, 6: 20.0})
    views = [DraftView(2, (0.0, 0.0)), DraftView(2, (0.5, 0.5))]
    assert list(made.rows(views, other_rows=0)) == [3, 3]
    assert sum(made.rows(views, other_rows=0)) == 3


def test_a_new_block_is_expected_to_be_like_earlier_ones() -> None:
    made = planner()
    for _ in range(5000):
        made.rows([DraftView(2, (0.9, 0.0), (0.9, 0.0))], other_rows=0)
    assert list(made.rows([DraftView(2)], other_rows=0)) == [2]


def test_rows_of_prompts_are_part_of_the_step() -> None:
    """From 2 to 3 rows the step gets ten times as long."""
    made = planner({1: 1.0, 2: 1.0, 3: 10.0})
    assert list(made.rows([GOOD], other_rows=0)) == [2]
    assert list(made.rows([GOOD], other_rows=1)) == [1]


def test_while_nobody_has_drafts_nothing_is_planned_for_fifteen_steps() -> None:
    loop = Loop(planner(SLOW), GOOD, SLOW)
    loop.run(50)
    rests = []
    for _ in range(32):
        loop.run(1)
        rests.append(loop.rests)
    first = rests.index(15)
    assert rests[first : first + 17] == [*range(15, -1, -1), 15]


@pytest.mark.parametrize("view", [GOOD, BAD])
def test_nobody_rests_while_there_are_drafts_or_while_something_is_tried(view: DraftView) -> None:
    loop = Loop(planner(), view)
    loop.run(300)
    rests = set()
    for _ in range(1000):
        [(rows, drafts)] = loop.run(1)
        if rows > 1 or drafts:
            rests.add(loop.rests)
    assert rests == {0}


def test_steps_without_drafts_are_tried_soon_as_nothing_is_known_of_them() -> None:
    """Three rows promise 2.7 tokens in 12 ms; a plain step seems to lose 10 - 12 / 2.7 = 5.6 ms.

    Seven of them and a round make 39.9 ms, which 54 steps have earned 16 times. What is found is
    clear, so the next trial comes when it was earned 1024 times, in 3404 steps.
    """
    found = Loop(planner(), GOOD).run(8000)
    tried = [number for number, (rows, _) in enumerate(found) if number and rows == 1]
    starts = [number for number in tried if number - 1 not in tried]
    # The round behind the last step of before leaves drafts, the last of six plain ones has one.
    first = starts[0]
    assert found[first - 1 : first + 7] == [(3, False), *[(1, False)] * 6, (1, True)]
    assert first == pytest.approx(56, abs=4)
    assert starts[1] - first == pytest.approx(3404, rel=0.02)
    assert starts[2] - starts[1] == pytest.approx(3404, rel=0.02)


def test_the_first_two_steps_of_another_kind_are_not_timed() -> None:
    """They take 100 ms; then steps of 20 ms follow, of which three must be seen."""
    for following, plain_ms in ((2, 10.0), (3, 20.0)):
        made = planner()
        for step_ms in (100.0, 100.0, *[20.0] * following):
            made.took(StepTimes(sequences=1, rows=1, step_s=step_ms / 1e3, drafted=False))
        assert made._present.of(1).plain_ms(1) == plain_ms


def test_a_step_that_turns_out_faster_without_drafts_ends_drafting() -> None:
    """Measured 10 ms, it takes 2 in truth: one token in 2 ms against 2.7 in 12."""
    loop = Loop(planner(), GOOD, {**TIMES, 1: 2.0})
    assert all(drafts for _, drafts in loop.run(15))
    assert loop.usual(100) == (1, False)


def test_drafts_that_hold_less_often_than_they_say_end_drafting() -> None:
    """What is said to survive with 0.9 and 0.8 never does: 1 token in 12 ms against 1 in 10."""
    loop = Loop(planner(), GOOD)
    assert loop.usual(50) == (3, True)
    for _ in range(100):
        loop.made.learn([DraftOutcome(verified=2, accepted=0, confidences=(0.9, 0.8 / 0.9))])
    loop.comes = (0.0, 0.0)
    assert loop.usual(50) == (1, False)


def test_the_device_may_share_out_rows_of_drafts_by_what_came_of_earlier_ones() -> None:
    made = planner()
    assert made.shares() is None
    assert sum(made.rows([GOOD], other_rows=0)) == 3
    assert made.shares() == (1.0, 1.0)
    made.learn([DraftOutcome(verified=2, accepted=1, confidences=(0.5, 0.5))])
    # 4 imaginary drafts: 1 came of 0.5, and none of 0.25.
    assert made.shares() == (5 / 4.5, 4 / 4.25)
    made.rows([BARE], other_rows=0)
    assert made.shares() is None
