"""Does what the step loop reports end in the right figures?"""

import threading
from typing import Any

import pytest
from deepinfer_core.engine.instruments import Instruments, Readings, StepFacts
from deepinfer_core.engine.outputs import FinishReason, Timeline, Usage
from deepinfer_core.telemetry.registry import exposition
from deepinfer_core.telemetry.statistics import Figures

EMPTY = Readings(
    running=0, waiting=0, used_blocks=0, idle_blocks=0, free_blocks=10,
    used_slots=0, snapshots=0, free_slots=4,
)  # fmt: skip


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Levels:
    now = EMPTY

    def __call__(self) -> Readings:
        return self.now


@pytest.fixture
def levels() -> Levels:
    return Levels()


@pytest.fixture
def instruments(levels: Levels) -> Instruments:
    return Instruments(levels, version="1.2", model="tiny", components={"gemm.dense": "core.x"})


def value(instruments: Instruments, name: str, **labels: str) -> float | None:
    return instruments.registry.get_sample_value(f"deepinfer_{name}", labels)


def facts(**changes: Any) -> StepFacts:
    plain = StepFacts(
        kind="decode", prompt_rows=0, decode_rows=0, ended_s=50.0, elapsed_s=0.04,
        schedule_s=0.0003, wait_s=0.03, output_s=0.0004,
    )  # fmt: skip
    return plain._replace(**changes)


def timeline(**changes: Any) -> Timeline:
    stations: dict[str, Any] = {
        "arrived_s": 10.0, "scheduled_s": 11.0, "prefilled_s": 13.0, "first_token_s": 13.5,
        "finished_s": 20.0,
    }  # fmt: skip
    return Timeline(**{**stations, **changes})


def test_rows_are_counted_by_phase_and_by_step(instruments: Instruments) -> None:
    instruments.stepped(facts(kind="mixed", prompt_rows=30, decode_rows=3))
    instruments.stepped(facts(kind="decode", decode_rows=4))
    assert value(instruments, "rows_total", phase="prompt") == 30
    assert value(instruments, "rows_total", phase="decode") == 7
    assert value(instruments, "step_rows_sum") == 37
    assert value(instruments, "step_rows_count") == 2


def test_times_of_a_step_are_told_apart(instruments: Instruments) -> None:
    instruments.stepped(facts(kind="prefill", elapsed_s=1, schedule_s=2, wait_s=3, output_s=4))
    instruments.stepped(facts(kind="decode", elapsed_s=10, schedule_s=20, wait_s=30, output_s=40))
    assert value(instruments, "step_seconds_sum", kind="prefill") == 1
    assert value(instruments, "step_seconds_sum", kind="decode") == 10
    assert value(instruments, "step_seconds_count", kind="mixed") == 0
    assert value(instruments, "step_schedule_seconds_sum") == 22
    assert value(instruments, "step_wait_seconds_sum") == 33
    assert value(instruments, "step_output_seconds_sum") == 44


def test_each_token_is_either_a_first_one_or_has_a_latency(instruments: Instruments) -> None:
    instruments.stepped(facts(first_tokens_s=[0.3, 0.7], previous_tokens_s=[49.0, 49.0, 47.5]))
    assert value(instruments, "generation_tokens_total") == 5
    assert value(instruments, "time_to_first_token_seconds_count") == 2
    assert value(instruments, "time_to_first_token_seconds_sum") == 1.0
    assert value(instruments, "inter_token_latency_seconds_count") == 3
    assert value(instruments, "inter_token_latency_seconds_sum") == 4.5


def test_tokens_of_one_step_have_no_time_between_them(instruments: Instruments) -> None:
    """Two sequences: one drew a token, the other got three more with it."""
    instruments.stepped(facts(previous_tokens_s=[49.0, 49.0], more_tokens=3))
    assert value(instruments, "generation_tokens_total") == 5
    assert value(instruments, "inter_token_latency_seconds_count") == 5
    assert value(instruments, "inter_token_latency_seconds_sum") == 2.0


def test_drafts_are_counted_by_place(instruments: Instruments) -> None:
    instruments.stepped(facts(verified=[(3, 1), (3, 1), (9, 9), (1, 0)]))
    places = ("1", "2", "3", "7", "later")
    counted = [value(instruments, "draft_tokens_total", place=place) for place in places]
    assert counted == [4, 3, 3, 1, 2]
    accepted = [value(instruments, "accepted_draft_tokens_total", place=place) for place in places]
    assert accepted == [3, 1, 1, 1, 2]
    assert value(instruments, "draft_rounds_total") == 4


def test_a_late_token_of_one_request_shows_beside_the_others(instruments: Instruments) -> None:
    instruments.stepped(facts(previous_tokens_s=[49.99] * 255 + [45.0]))
    assert value(instruments, "inter_token_latency_seconds_bucket", le="0.02") == 255
    assert value(instruments, "inter_token_latency_seconds_bucket", le="2.0") == 255
    assert value(instruments, "inter_token_latency_seconds_bucket", le="5.0") == 256


def test_a_sequence_that_enters_tells_how_long_it_waited(instruments: Instruments) -> None:
    instruments.stepped(facts(queued_s=(0.5, 1.5)))
    assert value(instruments, "queue_seconds_count") == 2
    assert value(instruments, "queue_seconds_sum") == 2.0


@pytest.mark.parametrize("reason", ["stop", "length", "abort", "error"])
def test_an_end_is_counted_by_its_reason(instruments: Instruments, reason: FinishReason) -> None:
    instruments.arrived()
    instruments.finished(reason, Usage(prompt_tokens=3), timeline())
    assert value(instruments, "requests_total") == 1
    reasons = ("stop", "length", "abort", "error")
    ended = [value(instruments, "requests_finished_total", reason=one) for one in reasons]
    assert ended == [one == reason for one in reasons]
    assert value(instruments, "requests_aborted_total") == (reason == "abort")


def test_an_end_adds_the_usage_and_the_lengths(instruments: Instruments) -> None:
    usage = Usage(prompt_tokens=300, completion_tokens=40, cached_tokens=256, replayed_tokens=127)
    for _ in range(2):
        instruments.finished("stop", usage, timeline())
    assert value(instruments, "prompt_tokens_total") == 600
    assert value(instruments, "prompt_cached_tokens_total") == 512
    assert value(instruments, "prompt_replayed_tokens_total") == 254
    assert value(instruments, "request_prompt_tokens_bucket", le="256.0") == 0
    assert value(instruments, "request_prompt_tokens_bucket", le="512.0") == 2
    assert value(instruments, "request_generation_tokens_sum") == 80
    assert value(instruments, "request_seconds_sum") == 20.0


def test_an_end_counts_no_token_twice(instruments: Instruments) -> None:
    instruments.stepped(facts(first_tokens_s=[0.1]))
    instruments.finished("length", Usage(prompt_tokens=1, completion_tokens=1), timeline())
    assert value(instruments, "generation_tokens_total") == 1


def test_levels_are_those_of_the_moment_without_any_step(
    instruments: Instruments, levels: Levels
) -> None:
    levels.now = Readings(
        running=3, waiting=2, used_blocks=6, idle_blocks=1, free_blocks=3,
        used_slots=3, snapshots=2, free_slots=1, preemptions=5,
        lookups=7, hit_blocks=8, evicted_blocks=9, evicted_snapshots=10, late_kernels=11,
    )  # fmt: skip
    assert value(instruments, "requests_running") == 3
    assert value(instruments, "requests_waiting") == 2
    assert value(instruments, "kv_cache_usage_ratio") == 0.6
    blocks = [value(instruments, "kv_cache_blocks", state=s) for s in ("used", "idle", "free")]
    slots = [value(instruments, "state_slots", state=s) for s in ("used", "snapshot", "free")]
    assert (blocks, slots) == ([6, 1, 3], [3, 2, 1])
    assert value(instruments, "preemptions_total") == 5
    names = ("lookups", "hit_blocks", "evicted_blocks", "evicted_snapshots")
    assert [value(instruments, f"prefix_cache_{name}_total") for name in names] == [7, 8, 9, 10]
    assert value(instruments, "late_kernels_total") == 11
    levels.now = EMPTY
    assert value(instruments, "requests_running") == 0


def test_an_engine_without_blocks_has_a_usage_of_zero(
    instruments: Instruments, levels: Levels
) -> None:
    levels.now = EMPTY._replace(free_blocks=0)
    assert value(instruments, "kv_cache_usage_ratio") == 0


def test_the_engine_describes_itself(instruments: Instruments) -> None:
    assert value(instruments, "build_info", version="1.2", model="tiny") == 1
    assert value(instruments, "component_info", slot="gemm.dense", component="core.x") == 1


def test_an_engines_registry_is_its_own_and_always_the_same(instruments: Instruments) -> None:
    other = Instruments(Levels(), version="1.2", model="tiny")
    other.arrived()
    assert value(instruments, "requests_total") == 0
    assert instruments.registry is instruments.registry
    assert instruments.registry is not other.registry


def test_series_neither_come_nor_go_with_requests(instruments: Instruments) -> None:
    def names() -> list[str]:
        lines = exposition(instruments.registry).splitlines()
        return [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]

    before = names()
    instruments.arrived()
    instruments.stepped(facts(first_tokens_s=[0.1], queued_s=[0.1], previous_tokens_s=[1.0]))
    instruments.finished("error", Usage(prompt_tokens=1), timeline())
    assert names() == before


def test_no_report_is_lost_between_threads(instruments: Instruments) -> None:
    def report() -> None:
        for _ in range(500):
            instruments.arrived()
            instruments.stepped(facts(decode_rows=1))

    threads = [threading.Thread(target=report) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert value(instruments, "requests_total") == 2000
    assert value(instruments, "step_rows_count") == 2000


@pytest.fixture
def lines() -> list[Figures]:
    return []


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timed(levels: Levels, lines: list[Figures], clock: Clock) -> Instruments:
    """With a line every 10 s."""
    return Instruments(
        levels, version="1", model="m", statistics_interval_s=10.0, report=lines.append,
        clock_s=clock,
    )  # fmt: skip


def test_a_step_ends_a_window_that_is_due(timed: Instruments, lines: list[Figures]) -> None:
    timed.stepped(facts(ended_s=1009.0, first_tokens_s=[2.0]))
    assert lines == []
    timed.stepped(facts(ended_s=1012.0, first_tokens_s=[1.0]))
    [figures] = lines
    assert (figures["window_s"], figures["steps"]) == (12.0, 2)
    assert (figures["first_token_mean_s"], figures["first_token_max_s"]) == (1.5, 2.0)


def test_an_arrival_after_idle_time_ends_the_idle_window(
    timed: Instruments, lines: list[Figures], clock: Clock
) -> None:
    clock.now_s = 1300.0
    timed.arrived()
    [figures] = lines
    assert (figures["window_s"], figures["is_idle"], figures["arrived"]) == (300.0, True, 0)
    timed.stepped(facts(ended_s=1310.0))
    assert (lines[1]["is_idle"], lines[1]["arrived"]) == (False, 1)


def test_an_idle_engine_can_be_asked_for_its_line(
    timed: Instruments, lines: list[Figures], clock: Clock
) -> None:
    for now_s in (1005.0, 1010.0, 1020.0):
        clock.now_s = now_s
        timed.tick()
    assert [figures["is_idle"] for figures in lines] == [True, True]


def test_without_an_interval_there_is_no_line(levels: Levels, lines: list[Figures]) -> None:
    silent = Instruments(levels, version="1", model="m", report=lines.append)
    silent.stepped(facts(ended_s=1e9))
    silent.tick()
    assert lines == []


def test_a_line_that_fails_leaves_the_step_and_its_figures_alone(
    levels: Levels, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(figures: Figures) -> None:
        raise KeyError("broken")

    timed = Instruments(
        levels, version="1", model="m", statistics_interval_s=1.0, report=fail, clock_s=Clock()
    )
    for ended_s in (1002.0, 1004.0, 1006.0):
        timed.stepped(facts(ended_s=ended_s, decode_rows=1))
    assert value(timed, "step_rows_count") == 3
    assert len(caplog.records) == 1


def test_durations_follow_from_the_stations() -> None:
    times = timeline()
    assert (times.queue_s, times.prefill_s, times.decode_s, times.total_s) == (1.0, 2.0, 6.5, 10.0)


def test_a_station_that_was_not_reached_has_no_duration() -> None:
    waiting = timeline(scheduled_s=None, prefilled_s=None, first_token_s=None)
    assert (waiting.queue_s, waiting.prefill_s, waiting.decode_s) == (None, None, None)
    assert waiting.total_s == 10.0
    prefilling = timeline(prefilled_s=None, first_token_s=None)
    assert (prefilling.queue_s, prefilling.prefill_s) == (1.0, None)
