"""Does a line say what happened in its window, and can it never hurt an engine?"""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from deepinfer_core.config.settings import TelemetrySettings
from deepinfer_core.telemetry import statistics
from deepinfer_core.telemetry.board import Board
from deepinfer_core.telemetry.logs import configure_logging
from deepinfer_core.telemetry.statistics import (
    Figures,
    StatisticsLine,
    Window,
    figures_of,
    log_figures,
)


@pytest.fixture
def board() -> Board:
    return Board({})


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root, ours = logging.getLogger(), logging.getLogger("deepinfer")
    handlers, level = list(root.handlers), ours.level
    stream = io.StringIO()
    configure_logging(TelemetrySettings(level="info", format="json"), stream)
    yield stream
    root.handlers[:] = handlers
    ours.setLevel(level)


def events(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def add(board: Board, name: str, value: float, *labels: str) -> None:
    board.number(name, *labels).value += value


def between(board: Board, length_s: float, change: Any = lambda: None, **more: Any) -> Figures:
    before = tuple(board.read())
    change()
    return figures_of(Window(length_s=length_s, before=before, after=tuple(board.read()), **more))


def test_rates_and_counts_are_of_the_window_alone(board: Board) -> None:
    def work(prompt_rows: int, drawn: int) -> None:
        add(board, "rows_total", prompt_rows, "prompt")
        add(board, "generation_tokens_total", drawn)
        add(board, "requests_total", 2)
        add(board, "requests_finished_total", 1, "abort")
        add(board, "preemptions_total", 3)
        board.distribution("request_seconds").observe(1.0)

    work(1000, 1000)
    figures = between(board, 4.0, lambda: work(200, 10))
    assert (figures["prompt_rows_per_s"], figures["drawn_tokens_per_s"]) == (50.0, 2.5)
    assert (figures["arrived"], figures["finished"], figures["aborted"]) == (2, 1, 1)
    assert (figures["failed"], figures["preempted"]) == (0, 3)


def test_drafts_are_told_by_place_where_there_were_any(board: Board) -> None:
    def work() -> None:
        add(board, "draft_rounds_total", 4)
        for place, verified, accepted in (("1", 4, 3), ("2", 4, 1), ("later", 2, 0)):
            add(board, "draft_tokens_total", verified, place)
            add(board, "accepted_draft_tokens_total", accepted, place)

    work()
    figures = between(board, 4.0, work)
    assert (figures["drafted_tokens"], figures["accepted_tokens"]) == (10, 4)
    assert (figures["accepted_ratio"], figures["drafted_mean"]) == (0.4, 2.5)
    assert figures["accepted_mean"] == 1.0
    places = {name: value for name, value in figures.items() if name.startswith("accepted_ratio_")}
    assert places == {"accepted_ratio_1": 0.75, "accepted_ratio_2": 0.25, "accepted_ratio_later": 0}


def test_the_time_of_steps_is_split_by_kind(board: Board) -> None:
    def work() -> None:
        for kind, seconds in (("prefill", 1.0), ("decode", 0.25), ("decode", 0.25), ("mixed", 0.5)):
            board.distribution("step_seconds", kind).observe(seconds)
            board.distribution("step_rows").observe(8)

    work()
    figures = between(board, 4.0, work)
    assert [figures[f"{kind}_steps"] for kind in ("prefill", "decode", "mixed")] == [1, 2, 1]
    assert [figures[f"{kind}_s"] for kind in ("prefill", "decode", "mixed")] == [1.0, 0.5, 0.5]
    assert (figures["steps"], figures["busy_ratio"], figures["step_rows_mean"]) == (4, 0.5, 8.0)
    assert figures["is_idle"] is False


def test_means_and_the_maximum_are_of_the_window_alone(board: Board) -> None:
    times = board.distribution("time_to_first_token_seconds")
    times.observe(100.0)

    def work() -> None:
        times.observe(1.0)
        times.observe(2.0)

    figures = between(board, 4.0, work, slowest_first_token_s=2.0)
    assert (figures["first_token_mean_s"], figures["first_token_max_s"]) == (1.5, 2.0)


def test_levels_are_those_at_the_end(board: Board) -> None:
    def work() -> None:
        add(board, "requests_running", 3)
        add(board, "requests_waiting", 2)
        add(board, "kv_cache_usage_ratio", 0.5)
        add(board, "kv_cache_blocks", 7, "idle")
        for state, count in (("used", 3), ("snapshot", 1), ("free", 2)):
            add(board, "state_slots", count, state)

    figures = between(board, 4.0, work)
    assert (figures["running"], figures["waiting"], figures["block_usage_ratio"]) == (3, 2, 0.5)
    assert (figures["idle_blocks"], figures["snapshots"], figures["slot_usage_ratio"]) == (
        7,
        1,
        0.5,
    )


def test_the_cached_share_is_of_prompts_that_ended_in_the_window(board: Board) -> None:
    def work(cached: int) -> None:
        add(board, "prompt_tokens_total", 100)
        add(board, "prompt_cached_tokens_total", cached)

    work(0)
    assert between(board, 4.0, lambda: work(60))["cached_prompt_ratio"] == 0.6


def test_an_idle_window_says_so_and_divides_by_nothing(board: Board) -> None:
    figures = between(board, 4.0)
    assert figures["is_idle"] is True
    assert (figures["steps"], figures["drawn_tokens_per_s"], figures["busy_ratio"]) == (0, 0.0, 0.0)
    unknown = {name for name, value in figures.items() if value is None}
    assert unknown == {
        "first_token_mean_s", "first_token_max_s", "inter_token_mean_s", "queue_mean_s",
        "step_rows_mean", "step_schedule_mean_s", "step_wait_mean_s", "step_output_mean_s",
        "prompt_tokens_mean", "output_tokens_mean", "cached_prompt_ratio", "slot_usage_ratio",
        "accepted_ratio", "drafted_mean", "accepted_mean",
    }  # fmt: skip


def test_a_window_without_length_has_no_rates(board: Board) -> None:
    figures = between(board, 0.0, lambda: add(board, "generation_tokens_total", 5))
    assert (figures["drawn_tokens_per_s"], figures["busy_ratio"]) == (None, None)


def test_without_a_reading_before_everything_counts(board: Board) -> None:
    add(board, "generation_tokens_total", 8)
    board.distribution("step_seconds", "decode").observe(1.0)
    figures = figures_of(Window(length_s=4.0, before=(), after=tuple(board.read())))
    assert (figures["drawn_tokens_per_s"], figures["decode_steps"]) == (2.0, 1)


def test_a_counter_that_was_made_anew_counts_from_zero(board: Board) -> None:
    add(board, "prefix_cache_evicted_blocks_total", 9)

    def restart() -> None:
        board.number("prefix_cache_evicted_blocks_total").value = 2

    assert between(board, 4.0, restart)["evicted_blocks"] == 2


@pytest.fixture
def lines() -> list[Figures]:
    return []


@pytest.fixture
def line(board: Board, lines: list[Figures]) -> StatisticsLine:
    return StatisticsLine(board, 10.0, started_s=100.0, report=lines.append)


def test_a_window_ends_at_the_first_tick_after_its_least_length(
    line: StatisticsLine, lines: list[Figures]
) -> None:
    seen = []
    for now_s in (100.0, 109.999, 110.0, 119.999, 125.0, 134.999, 135.0):
        line.tick(now_s)
        seen.append([figures["window_s"] for figures in lines])
    assert seen == [[], [], [10.0], [10.0], [10.0, 15.0], [10.0, 15.0], [10.0, 15.0, 10.0]]


def test_each_window_begins_where_the_last_one_ended(
    board: Board, line: StatisticsLine, lines: list[Figures]
) -> None:
    for now_s, arrived in ((105.0, 1), (111.0, 2), (115.0, 4), (121.0, 8), (131.0, 0)):
        add(board, "requests_total", arrived)
        line.tick(now_s)
    assert [figures["arrived"] for figures in lines] == [3, 12, 0]


def test_the_slowest_first_token_is_forgotten_with_its_window(
    line: StatisticsLine, lines: list[Figures]
) -> None:
    for seconds, now_s in (((3.0, 5.0), 101.0), ((4.0,), 111.0), ((1.0,), 121.0), ((), 131.0)):
        line.saw_first_tokens(seconds)
        line.tick(now_s)
    assert [figures["first_token_max_s"] for figures in lines] == [5.0, 1.0, None]


def test_a_receiver_may_come_back_to_the_line(board: Board, lines: list[Figures]) -> None:
    def again(figures: Figures) -> None:
        lines.append(figures)
        returning.tick(110.0)

    returning = StatisticsLine(board, 10.0, started_s=100.0, report=again)
    returning.tick(110.0)
    assert len(lines) == 1


def test_a_receiver_that_fails_is_logged_once_and_asked_no_more(
    board: Board, stream: io.StringIO
) -> None:
    calls = []

    def fail(figures: Figures) -> None:
        calls.append(figures)
        raise KeyError("the receiver broke")

    line = StatisticsLine(board, 10.0, started_s=100.0, report=fail)
    for now_s in (110.0, 120.0, 130.0):
        line.tick(now_s)
    [event] = events(stream)
    assert (event["event"], event["level"]) == ("statistics.failed", "error")
    assert "the receiver broke" in event["exception"]
    assert len(calls) == 1


def test_a_reading_that_fails_does_not_reach_the_engine(stream: io.StringIO) -> None:
    def fail() -> None:
        raise OSError("no reading")

    line = StatisticsLine(Board({}, fail), 10.0, started_s=100.0, report=log_figures)
    line.tick(110.0)
    line.tick(120.0)
    assert [event["event"] for event in events(stream)] == ["statistics.failed"]


def test_where_logging_itself_is_broken_the_failure_is_still_shown(
    line: StatisticsLine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(name: str) -> Any:
        raise OSError("no log")

    monkeypatch.setattr(statistics, "get_logger", broken)
    monkeypatch.setattr(line, "_report", log_figures)
    line.tick(110.0)
    assert "no log" in capsys.readouterr().err


def test_a_line_is_one_event_with_all_figures(board: Board, stream: io.StringIO) -> None:
    StatisticsLine(board, 1.0, started_s=0.0, report=log_figures).tick(2.0)
    [event] = events(stream)
    assert (event["event"], event["level"]) == ("statistics.gathered", "info")
    assert event["window_s"] == 2.0
    assert event["first_token_mean_s"] is None
    figures = figures_of(Window(length_s=2.0, before=(), after=tuple(board.read())))
    assert figures.keys() <= event.keys()
