"""Does an engine report what really happened in its steps?"""

from collections.abc import Callable
from itertools import count

import pytest
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.instruments import StepFacts
from deepinfer_core.engine.outputs import Completion
from deepinfer_core.engine.request_options import RequestOptions
from deepinfer_core.engine.rows import DraftRequest, RowRequest, RowResult, StepHandle
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.schedule.plan import StepPlan
from deepinfer_core.testing.fake_runner import FakeRunner

MakeEngine = Callable[..., Engine]


def params(tokens: int = 3) -> SamplingParams:
    return SamplingParams(max_tokens=tokens, ignore_eos=True, seed=7)


def run(engine: Engine) -> list[Completion]:
    ended = []
    while len(engine.batch):
        ended += [update.delta.completion for update in engine.step()]
    return [completion for completion in ended if completion is not None]


def value(engine: Engine, name: str, **labels: str) -> float | None:
    return engine.instruments.registry.get_sample_value(f"deepinfer_{name}", labels)


def test_rows_and_steps_are_those_that_were_fed(make_engine: MakeEngine) -> None:
    engine = make_engine(rows=8, sequences=2)
    engine.submit(0, range(10, 20), params(4))
    run(engine)
    # 8 + 2 rows of the prompt, which draw the first token, and 3 more tokens.
    assert value(engine, "rows_total", phase="prompt") == 10
    assert value(engine, "rows_total", phase="decode") == 3
    assert value(engine, "step_seconds_count", kind="prefill") == 2
    assert value(engine, "step_seconds_count", kind="decode") == 3
    assert value(engine, "generation_tokens_total") == 4
    assert value(engine, "time_to_first_token_seconds_count") == 1
    assert value(engine, "inter_token_latency_seconds_count") == 3
    assert value(engine, "queue_seconds_count") == 1


def test_a_step_with_both_kinds_of_rows_is_mixed(make_engine: MakeEngine) -> None:
    engine = make_engine(rows=8, sequences=3, asynchronous=False)
    engine.submit(0, [10], params(3))
    engine.step()
    engine.submit(1, range(10, 14), params(1))
    engine.submit(2, [10], params(1))
    engine.step()
    assert value(engine, "step_seconds_count", kind="mixed") == 1
    assert value(engine, "rows_total", phase="decode") == 1
    assert value(engine, "rows_total", phase="prompt") == 6


def test_a_prompt_of_one_token_is_prompt_rows(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.submit(0, [10], params(1))
    run(engine)
    assert value(engine, "rows_total", phase="prompt") == 1
    assert value(engine, "step_seconds_count", kind="prefill") == 1


def test_counts_agree_with_the_usage_of_all_requests(make_engine: MakeEngine) -> None:
    engine = make_engine(rows=4, sequences=3, blocks=6)
    for index in range(6):
        engine.submit(index, range(10, 14 + index), params(4 + index))
    ended = run(engine)
    tokens = sum(done.usage.completion_tokens for done in ended)
    assert engine.batch.preemptions > 0
    assert value(engine, "preemptions_total") == engine.batch.preemptions
    assert sum(done.timeline.preemptions for done in ended if done.timeline) == (
        engine.batch.preemptions
    )
    assert value(engine, "requests_total") == 6
    assert value(engine, "requests_finished_total", reason="length") == 6
    assert value(engine, "generation_tokens_total") == tokens
    assert value(engine, "prompt_tokens_total") == sum(done.usage.prompt_tokens for done in ended)
    assert value(engine, "time_to_first_token_seconds_count") == 6
    assert value(engine, "inter_token_latency_seconds_count") == tokens - 6
    assert value(engine, "queue_seconds_count") == 6


def test_levels_are_right_before_during_and_after_work(make_engine: MakeEngine) -> None:
    engine = make_engine(rows=8, sequences=1, blocks=8, snapshots=2)

    def levels() -> tuple[float | None, ...]:
        return (
            value(engine, "requests_running"),
            value(engine, "requests_waiting"),
            value(engine, "kv_cache_blocks", state="used"),
            value(engine, "kv_cache_blocks", state="idle"),
            value(engine, "kv_cache_blocks", state="free"),
            value(engine, "state_slots", state="used"),
            value(engine, "state_slots", state="snapshot"),
            value(engine, "state_slots", state="free"),
        )

    seen = [levels()]
    first = engine.submit(0, range(10, 15), params(8))
    engine.submit(1, range(10, 15), params(8))
    seen.append(levels())
    for _ in range(3):
        engine.step()
    seen.append(levels())
    engine.abort(first)
    seen.append(levels())
    engine.reset()
    seen.append(levels())
    # The third step is under way: two blocks and their boundary's states, 4 and then 1 row fed.
    assert seen == [
        (0, 0, 0, 0, 8, 0, 0, 3),
        (0, 2, 0, 0, 8, 0, 0, 3),
        (1, 1, 2, 0, 6, 1, 1, 1),
        (0, 1, 0, 1, 7, 0, 1, 2),
        (0, 0, 0, 0, 8, 0, 0, 3),
    ]
    assert value(engine, "requests_aborted_total") == 1


def test_a_failed_step_ends_its_requests_and_counts_no_tokens(make_engine: MakeEngine) -> None:
    def fail(plan: StepPlan) -> None:
        raise OSError("broken")

    engine = make_engine(runner=FakeRunner(265, 4, fail))
    engine.submit(0, [10], params())
    run(engine)
    assert value(engine, "requests_finished_total", reason="error") == 1
    assert value(engine, "generation_tokens_total") == 0


@pytest.mark.parametrize("asynchronous", [False, True])
def test_stations_are_passed_in_order(make_engine: MakeEngine, asynchronous: bool) -> None:
    engine = make_engine(rows=4, sequences=1, asynchronous=asynchronous)
    ticks = count(100)
    engine.clock_s = lambda: float(next(ticks))
    engine.submit(0, range(10, 20), params(2))
    engine.submit(1, [10], params(2))
    for done in run(engine):
        times = done.timeline
        assert times is not None
        # The step that ends a prompt draws its first token.
        assert times.prefilled_s == times.first_token_s
        stations = [times.arrived_s, times.scheduled_s, times.first_token_s, times.finished_s]
        assert stations == sorted(set(stations), key=lambda one: one or 0.0)
        assert done.timings_s.first_token == times.first_token_s - times.arrived_s  # type: ignore[operator]
        assert done.timings_s.total == times.total_s


def test_a_preempted_request_passes_each_station_once(make_engine: MakeEngine) -> None:
    engine = make_engine(rows=16, sequences=2, blocks=4)
    engine.submit(0, range(10, 17), params(6))
    number = engine.submit(1, range(10, 17), params(6))
    young = engine.batch.get(number)
    assert young is not None
    while young.first_token_s is None:
        engine.step()
    before = (young.first_scheduled_s, young.prefilled_s, young.first_token_s)
    assert not engine.batch.preemptions
    [done] = [one for one in run(engine) if one.index == 1]
    assert done.timeline is not None
    assert done.timeline.preemptions >= 1
    stations = (
        done.timeline.scheduled_s, done.timeline.prefilled_s, done.timeline.first_token_s,
    )  # fmt: skip
    assert stations == before


def test_rows_that_are_computed_again_are_prompt_rows(make_engine: MakeEngine) -> None:
    runner = FakeRunner(265, 4)
    engine = make_engine(rows=16, sequences=2, blocks=4, runner=runner, snapshots=0)
    for index in range(2):
        engine.submit(index, range(10, 17), params(6))
    ended = run(engine)
    fed = sum(plan.rows for plan in runner.plans)
    assert engine.batch.preemptions > 0
    assert fed > sum(done.usage.prompt_tokens + done.usage.completion_tokens - 1 for done in ended)
    # Each answer has 6 tokens, the first of which is drawn from a row of the prompt.
    assert value(engine, "rows_total", phase="decode") <= 2 * 5
    assert value(engine, "rows_total", phase="prompt") == fed - value(  # type: ignore[operator]
        engine, "rows_total", phase="decode"
    )


def test_the_token_after_the_first_one_is_timed_from_it(make_engine: MakeEngine) -> None:
    engine = make_engine()
    ends: list[float] = []
    report = engine.instruments.stepped

    def stepped(facts: StepFacts) -> None:
        ends.append(facts.ended_s)
        report(facts)

    engine.instruments.stepped = stepped  # type: ignore[method-assign]
    ticks = count(1000)
    engine.clock_s = lambda: float(next(ticks))
    engine.submit(0, range(10, 13), params(2))
    run(engine)
    assert value(engine, "inter_token_latency_seconds_sum") == ends[1] - ends[0]


class Slow(FakeRunner):
    """Each part of a step takes its own time on a clock that only it moves."""

    now_s = 100.0
    TAKES_S = (1.0, 10.0, 100.0)

    def launch(self, plan: StepPlan, before: StepHandle | None) -> StepHandle:
        self.now_s += self.TAKES_S[0]
        return super().launch(plan, before)

    def sample(
        self,
        step: StepHandle,
        rows: tuple[RowRequest, ...],
        wanted: tuple[DraftRequest, ...] = (),
    ) -> None:
        self.now_s += self.TAKES_S[1]
        super().sample(step, rows, wanted)

    def results(self, step: StepHandle) -> tuple[RowResult, ...]:
        self.now_s += self.TAKES_S[2]
        return super().results(step)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_times_of_a_step_are_told_apart_and_never_overlap(
    make_engine: MakeEngine, asynchronous: bool
) -> None:
    runner = Slow(265, 4)
    engine = make_engine(runner=runner, asynchronous=asynchronous)
    engine.clock_s = lambda: runner.now_s
    for index in range(2):
        began_s = runner.now_s
        engine.submit(index, [10], params(4))
        run(engine)
        # Four steps, while a fifth one need not be launched.
        steps = 4 * (index + 1)
        assert value(engine, "step_schedule_seconds_sum") == 11.0 * steps
        assert value(engine, "step_wait_seconds_sum") == 100.0 * steps
        assert value(engine, "step_output_seconds_sum") == 0.0
        kinds = ("prefill", "decode")
        elapsed_s = sum(value(engine, "step_seconds_sum", kind=kind) or 0.0 for kind in kinds)
        # All the time since the first step began, and none of it twice.
        assert elapsed_s == (runner.now_s - began_s) * (index + 1)
        runner.now_s += 1000.0  # stands still


@pytest.mark.parametrize("reason", ["abort", "error", "length", "stop"])
def test_every_end_is_counted(make_engine: MakeEngine, reason: str) -> None:
    engine = make_engine(eos_ids=frozenset({1}))
    golden = {"stop": [1]}.get(reason)
    options = RequestOptions(timeout_s=1e-9 if reason == "error" else None)
    asked = SamplingParams(max_tokens=2, seed=7, golden_token_ids=golden, ignore_eos=golden is None)
    number = engine.submit(0, [10], asked, options=options)
    if reason == "abort":
        engine.abort(number)
    else:
        run(engine)
    reasons = ("abort", "error", "length", "stop")
    ended = [value(engine, "requests_finished_total", reason=one) for one in reasons]
    assert ended == [one == reason for one in reasons]


def test_what_was_reused_is_counted_before_and_after_a_reset(make_engine: MakeEngine) -> None:
    engine = make_engine()
    for most in (1, 1):
        engine.submit(0, range(10, 21), params(most))
        run(engine)
    engine.reset()
    engine.submit(0, range(10, 21), params(1))
    run(engine)
    assert value(engine, "prefix_cache_lookups_total") == 3
    assert value(engine, "prefix_cache_hit_blocks_total") == 2
    assert value(engine, "prompt_cached_tokens_total") == 8


@pytest.mark.parametrize("steps", [0, 1])
def test_an_aborted_request_has_the_stations_that_it_reached(
    make_engine: MakeEngine, steps: int
) -> None:
    engine = make_engine(rows=4, sequences=1)
    number = engine.submit(0, range(10, 20), params(2))
    for _ in range(steps):
        engine.step()
    update = engine.abort(number)
    assert update is not None
    assert update.delta.completion is not None
    times = update.delta.completion.timeline
    assert times is not None
    assert (times.scheduled_s is not None) == bool(steps)
    assert (times.prefilled_s, times.first_token_s) == (None, None)
