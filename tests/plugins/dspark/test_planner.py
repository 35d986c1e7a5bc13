"""The planner's memory: costs from steps, means of blocks, and whether drafting pays."""

from collections.abc import Sequence

from deepinfer_core.interfaces.draft_planner import DraftOutcome, DraftView, StepTimes
from deepinfer_core.schedule.speculation_costs import CostCurve
from deepinfer_dspark.measuring import MeasuredCosts
from deepinfer_dspark.planner import DsparkPlanner

BAD = DraftView(2, (0.1, 0.01), (0.1, 0.01))
GOOD = DraftView(2, (0.9, 0.8), (0.9, 0.8))
BARE = DraftView(0)


def planner(
    rows: Sequence[int] = (1, 2, 3, 6), times: Sequence[float] = (10.0, 10.5, 11.0, 13.0),
    round_ms: float = 1.0, knows_plain: bool = True,
) -> DsparkPlanner:  # fmt: skip
    made = DsparkPlanner(
        MeasuredCosts(
            steps=CostCurve(rows=tuple(rows), milliseconds=tuple(times)),
            rounds=CostCurve(rows=(1, 2), milliseconds=(round_ms, round_ms)),
        ),
        drafts=2,
    )
    if knows_plain:
        took(made, rows=1, step_ms=times[0])
    return made


def decode(made: DsparkPlanner, view: DraftView, steps: int) -> list[bool]:
    """Whether each step is followed by a draft round; drafts are all alike."""
    found = []
    for _ in range(steps):
        made.rows([view], other_rows=0)
        found.append(made.drafts_next())
    return found


def took(made: DsparkPlanner, rows: int, step_ms: float, sequences: int = 1) -> None:
    """Enough steps to forget others; the first may be of another kind than the one before."""
    for _ in range(10):
        made.took(StepTimes(sequences=sequences, rows=rows, step_s=step_ms / 1e3, drafted=False))


def test_rows_are_planned_with_the_measured_costs() -> None:
    """1.9 / 10.5 and 2.7 / 11 and with a round of 1 ms more: 3 rows are the best."""
    assert list(planner().rows([GOOD], other_rows=0)) == [3]
    assert list(planner(times=(10.0, 10.5, 21.0, 26.0)).rows([GOOD], other_rows=0)) == [2]


def test_rows_are_planned_with_what_steps_took_lately() -> None:
    """Steps of 3 rows take 20 ms now, those of 2 as long as ever."""
    made = planner()
    took(made, rows=2, step_ms=10.5)
    took(made, rows=3, step_ms=20.0)
    assert list(made.rows([GOOD], other_rows=0)) == [2]


def test_what_rounds_take_is_learned_from_steps() -> None:
    """Measured 1 ms, now 30: 1.9 tokens in 10.5 ms become 1.9 in 40.5, against 1 in 10."""
    made = planner()
    for _ in range(5):
        made.took(StepTimes(sequences=1, rows=2, step_s=0.0405, drafted=True, round_s=0.03))
    half = DraftView(2, (0.9, 0.0), (0.9, 0.0))
    assert decode(made, half, 50)[-1] is False
    assert all(decode(planner(), half, 50))


def test_a_step_that_prompts_make_long_anyway_is_no_reason_to_stop() -> None:
    """100 ms with prompts, 10 without: a round of 1 ms wins 0.1 tokens of 100 ms each."""
    made = planner(rows=(1, 2, 3, 60, 90), times=(10.0, 10.5, 11.0, 100.0, 100.0))
    for _ in range(50):
        made.rows([BAD], other_rows=50)
        assert made.drafts_next()


def test_rows_go_where_drafts_are_known_to_be_good_before_where_they_are_like_all() -> None:
    """Two rows are cheap; a third is not."""
    made = planner(rows=(2, 3, 6), times=(10.0, 10.0, 90.0))
    decode(made, BAD, 20_000)
    new, good = DraftView(2), DraftView(2, (0.5, 0.4), (0.5, 0.4))
    assert list(made.rows([new, good], other_rows=0)) == [1, 2]


def test_drafting_stops_where_it_does_not_pay() -> None:
    """A round takes 1 ms and wins 0.1 tokens in a step of 10 ms: just too little."""
    assert decode(planner(), BAD, 50)[-1] is False
    assert all(decode(planner(), GOOD, 50))


def test_sequences_that_happen_to_have_no_drafts_are_no_reason_to_stop() -> None:
    """The other one's are good, whatever newer ones have taught meanwhile."""
    made = planner()
    took(made, rows=2, step_ms=10.5, sequences=2)
    for _ in range(50):
        made.rows([DraftView(2, (0.0, 0.0), (0.9, 0.9)), BARE], other_rows=0)
        assert made.drafts_next()


def test_drafting_is_tried_again_now_and_then() -> None:
    made = planner()
    decode(made, BAD, 1000)
    tried = decode(made, BARE, 107 * 20)
    # A step takes 10 ms and four rounds 4: 103 steps take 256 times that, then three are tried.
    assert sum(tried) == 3 * 20


def test_drafting_comes_back_when_blocks_look_better() -> None:
    made = planner()
    decode(made, BAD, 1000)
    decode(made, GOOD, 5000)
    assert decode(made, BARE, 50)[-1] is True


def test_drafting_comes_back_when_the_load_makes_it_pay() -> None:
    """Two rows more cost 8 ms for one sequence and nothing for two."""
    made = planner(rows=(1, 3, 6), times=(2.0, 10.0, 10.0))
    mixed = DraftView(2, (0.5, 0.3), (0.5, 0.3))
    assert decode(made, mixed, 1000)[-1] is False
    found = []
    for _ in range(50):
        made.rows([BARE, BARE], other_rows=0)
        found.append(made.drafts_next())
    assert found[-1] is True


def test_sequences_without_drafts_teach_nothing() -> None:
    made = planner()
    for _ in range(1000):
        made.rows([DraftView(0, (0.0, 0.0), (0.0, 0.0))], other_rows=0)
    # Both rates are still 1, so two rows more for 1 ms are worth it.
    assert list(made.rows([DraftView(2)], other_rows=0)) == [3]


def test_a_step_is_not_planned_with_the_mean_of_its_own_blocks() -> None:
    """With rates of 1, as nothing is known, 6 tokens in 21 ms beat 3 in 11; with less not."""
    made = planner(rows=(2, 3, 6), times=(10.0, 10.0, 20.0))
    took(made, rows=2, step_ms=10.0)
    views = [DraftView(2, (0.0, 0.0)), DraftView(2, (0.5, 0.5))]
    assert list(made.rows(views, other_rows=0)) == [3, 3]
    assert sum(made.rows(views, other_rows=0)) == 3


def test_a_new_block_is_expected_to_be_like_earlier_ones() -> None:
    made = planner()
    decode(made, DraftView(2, (0.9, 0.0), (0.9, 0.0)), 20_000)
    assert list(made.rows([DraftView(2)], other_rows=0)) == [2]


def test_rows_of_prompts_are_part_of_the_step() -> None:
    """From 2 to 3 rows the step gets ten times as long."""
    made = planner(rows=(1, 2, 3), times=(1.0, 1.0, 10.0))
    assert list(made.rows([GOOD], other_rows=0)) == [2]
    assert list(made.rows([GOOD], other_rows=1)) == [1]


def test_while_nobody_has_drafts_costs_are_compared_every_sixteen_steps() -> None:
    """For an expected 2.7 tokens, three rows become cheap: 0.7 ms in place of 20 ms behind 10."""
    made = planner(rows=(1, 2, 3, 6), times=(10.0, 30.0, 30.0, 40.0))
    decode(made, GOOD, 1000)
    assert decode(made, BARE, 40)[-1] is False
    took(made, rows=1, step_ms=10.0)
    took(made, rows=3, step_ms=10.7)
    found = decode(made, BARE, 40)
    assert found[-1] is True
    assert found.index(True) <= 16


def test_steps_without_drafts_are_tried_soon_until_their_time_is_known() -> None:
    """Three rows promise 2.7 tokens in 12 ms; a plain step seems to lose 10 - 12 / 2.7 = 5.6 ms.

    Four of them and the drafts of a round make 23 ms, and 8 times as much takes 16 drafting steps.
    """
    made = planner(knows_plain=False)
    found = [(sum(made.rows([GOOD], other_rows=0)), made.drafts_next()) for _ in range(40)]
    assert found == ([(3, True)] * 16 + [(1, False)] * 3 + [(1, True)]) * 2
    took(made, rows=1, step_ms=10.0)
    # 256 times 23.2 ms, that is 496 steps of 12.
    given = [sum(made.rows([GOOD], other_rows=0)) for _ in range(500)]
    assert given.count(1) == 4


def test_the_first_step_of_another_kind_is_not_timed() -> None:
    """It takes 100 ms; then nine of 10 ms follow, or none."""
    for following, is_known in ((2, False), (3, True)):
        made = planner(knows_plain=False)
        for step_ms in (100.0, *[10.0] * following):
            made.took(StepTimes(sequences=1, rows=1, step_s=step_ms / 1e3, drafted=False))
        assert made._present.knows(1) == is_known
        assert made._present.of(1).plain_ms(1) == 10.0


def test_a_step_that_turns_out_faster_without_drafts_ends_drafting() -> None:
    """Measured 10 ms, it takes 2 in truth: one token in 2 ms against 2.7 in 12."""
    made = planner()
    assert all(decode(made, GOOD, 50))
    took(made, rows=3, step_ms=11.0)
    took(made, rows=1, step_ms=2.0)
    assert decode(made, GOOD, 50)[-1] is False


def test_drafts_that_hold_less_often_than_they_say_end_drafting() -> None:
    """What is said to survive with 0.9 and 0.8 never does: 1 token in 12 ms against 1 in 10."""
    made = planner()
    assert all(decode(made, GOOD, 50))
    for _ in range(100):
        made.learn([DraftOutcome(verified=2, accepted=0, confidences=(0.9, 0.8 / 0.9))])
    assert decode(made, GOOD, 50)[-1] is False


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
