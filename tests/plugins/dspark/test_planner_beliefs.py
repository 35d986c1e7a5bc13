"""What the planner takes for known, and what it tries first."""

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.interfaces.draft_planner import DraftOutcome, DraftView, StepTimes
from deepinfer_dspark import planner as planner_module

sys.path.insert(0, str(Path(__file__).parent))
from planner_loop import BAD, GOOD, SLOW, TIMES, Loop, planner


def test_drafting_is_not_given_up_by_the_word_of_the_measured_curve() -> None:
    """One token in 4 ms against 2.7 in 12, so it says; the host adds 10 ms to every step."""
    curve = {**TIMES, 1: 4.0}
    loop = Loop(planner(curve), GOOD, {rows: one_ms + 10.0 for rows, one_ms in curve.items()})
    for _ in range(200):
        loop.run(1)
        assert loop.made._ways.is_drafting
    assert loop.usual(200) == (3, True)


def test_a_trial_comes_as_soon_as_drafting_seems_to_lose_against_what_was_never_timed() -> None:
    """0.5 tokens a ms without drafts, 2.7 in 12 ms with: 6.6 ms lost a step, 4 is the limit.

    Behind two steps that are not timed and four that are; the first had no drafts.
    """
    found = Loop(planner({**TIMES, 1: 2.0}), GOOD, {**TIMES, 1: 2.0}).run(20)
    assert [drafts for _, drafts in found[:9]] == [True] * 7 + [False] * 2


def test_where_nothing_can_be_timed_the_curve_is_believed_in_the_end() -> None:
    """Prompts are in every step. 1.5 tokens take 10 ms, one without drafts 5: 2.5 ms lost a step.

    16 rounds of 1 ms must be lost, not 4.
    """
    made, found = planner({1: 1.0, 2: 5.0, 3: 9.0}), []
    for _ in range(8):
        made.rows([DraftView(1, (0.5,), (0.5,))], other_rows=1)
        found.append(made.drafts_next())
    assert found == [True] * 6 + [False] * 2


def test_something_is_verified_until_steps_with_drafts_were_timed() -> None:
    """Two are left out as the first of their kind, then four count; a trial and another follow."""
    loop = Loop(planner(), BAD)
    loop.run(1)
    assert all(rows > 1 for rows, _ in loop.run(6))
    assert loop.made._present.are_timed(with_drafts=True)
    assert loop.usual(100) == (1, False)


def test_a_size_that_seems_a_little_worse_is_run_until_it_was_timed() -> None:
    """3 rows promise 2.7 tokens in 15 ms, 2 rows 1.9 in 10.4; in truth 3 rows take 11."""
    curve = {1: 10.0, 2: 10.4, 3: 16.0, 6: 20.0}
    loop = Loop(planner(curve), GOOD, {**curve, 3: 11.0})
    loop.made._runs.update({(3, True): 2})
    assert loop.usual(100) == (3, True)


def test_the_first_two_steps_of_a_size_are_not_timed() -> None:
    """Those of 2 rows were; then come three of 3 rows, of which one counts."""
    made = planner()
    for rows in (2, 2, 2, 2, 2, 3, 3, 3, 3):
        made.took(StepTimes(sequences=1, rows=rows, step_s=0.05, drafted=False))
    assert set(made._present._drafting.known_ms) == {1}
    made.took(StepTimes(sequences=1, rows=3, step_s=0.05, drafted=False))
    assert set(made._present._drafting.known_ms) == {1, 2}


def test_the_total_is_chosen_by_the_blocks_of_several_steps() -> None:
    """A second draft costs 1 ms of 12; one step in which it looks worthless changes nothing."""
    loop = Loop(planner(), GOOD)
    assert loop.usual(100) == (3, True)
    loop.view = DraftView(2, (0.9, 0.8), (0.9, 0.05))
    loop.made._repeated = None
    assert loop.run(1) == [(3, True)]


def test_where_all_drafts_are_verified_again_and_again_one_step_in_four_is_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []
    known = planner_module.choose_total
    monkeypatch.setattr(
        planner_module, "choose_total", lambda *a, **k: asked.append(a) or known(*a, **k)
    )
    loop = Loop(planner(), GOOD)
    loop.run(100)
    asked.clear()
    assert loop.run(40) == [(3, True)] * 40
    assert len(asked) == 2 * 10
    asked.clear()
    loop.view = DraftView(1, (0.9,), (0.9,))
    loop.run(1)
    assert asked


def test_a_doubtful_trial_is_repeated_ever_more_rarely() -> None:
    """1.1 tokens in 11.5 ms against 1 in 10, four hundredths less, so no ruling is clear."""
    loop = Loop(planner(), BAD)
    found = loop.run(6000)
    tried = [number for number, (rows, drafts) in enumerate(found) if rows > 1 or drafts]
    starts = [number for number in tried if not set(range(number - 30, number)) & set(tried)]
    apart = [after - before for before, after in pairwise(starts[1:])]
    # 64 and 128 times 9 ms are 58 and 115 steps of 10 ms, and the plain ones of a trial.
    assert apart[:2] == pytest.approx([115 + 26, 230 + 26], abs=20)
    assert apart[2:] == pytest.approx([230 + 26] * len(apart[2:]), abs=20)


def test_what_a_trial_found_corrects_estimates_at_that_load_only() -> None:
    """Two sequences: the host adds 20 ms to steps that verify, which the curve knows nothing of."""
    times = {**TIMES, 3: 31.0, 6: 33.0}
    loop = Loop(planner(), GOOD, times)
    assert loop.usual(200, sequences=2) == (2, False)
    for _ in range(3):
        assert loop.usual(200, sequences=1)[0] == 1
        assert loop.usual(200, sequences=2)[0] == 2


def test_a_trial_of_drafts_begins_without_what_earlier_texts_were_worth() -> None:
    """None of 2 drafts was accepted; in the trial both are verified, as they say that they hold."""
    loop = Loop(planner(), GOOD, SLOW)
    loop.run(200)
    for _ in range(100):
        loop.made.learn([DraftOutcome(verified=2, accepted=0, confidences=(0.9, 0.8 / 0.9))])
    assert max(loop.made.shares() or loop.made._bias.factors) < 0.1
    loop.times = TIMES
    found = loop.run(20_000)
    first = next(number for number, (rows, _) in enumerate(found) if rows > 1)
    assert found[first] == (3, True)
