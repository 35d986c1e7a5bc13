"""Is progress a stream that starts, advances and always finishes?"""

import io
from collections.abc import Iterator
from typing import Any

import pytest
from deepinfer_core.config.settings import TelemetrySettings
from deepinfer_core.telemetry.bars import TerminalBars
from deepinfer_core.telemetry.lines import ProgressLines
from deepinfer_core.telemetry.progress import (
    PhaseAdvanced,
    PhaseFinished,
    PhaseStarted,
    ProgressEvent,
    ProgressStream,
)
from deepinfer_core.telemetry.reports import log_progress, progress_consumers
from rich.console import Console


@pytest.fixture
def events() -> list[ProgressEvent]:
    return []


@pytest.fixture
def stream(events: list[ProgressEvent]) -> ProgressStream:
    ticks: Iterator[float] = iter((10.0, 12.5, 20.0, 21.0))
    return ProgressStream(events.append, clock_s=lambda: next(ticks))


def test_a_phase_starts_advances_and_finishes(
    stream: ProgressStream, events: list[ProgressEvent]
) -> None:
    with stream.phase("weights.load", 10, "bytes") as phase:
        phase.advance(4, "a")
        phase.advance_to(10)
    assert events == [
        PhaseStarted(phase="weights.load", total=10, unit="bytes"),
        PhaseAdvanced(phase="weights.load", done=4, total=10, detail="a"),
        PhaseAdvanced(phase="weights.load", done=10, total=10),
        PhaseFinished(phase="weights.load", done=10, elapsed_s=2.5, outcome="done"),
    ]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_phase_that_an_exception_leaves_has_failed(
    stream: ProgressStream, events: list[ProgressEvent], error: type[BaseException]
) -> None:
    def work() -> None:
        with stream.phase("work") as phase:
            phase.advance()
            raise error

    with pytest.raises(error):
        work()
    assert events[-1] == PhaseFinished(phase="work", done=1, elapsed_s=2.5, outcome="failed")


def test_progress_never_goes_back(stream: ProgressStream) -> None:
    with stream.phase("work") as phase:
        phase.advance_to(5)
        phase.advance_to(5)
        with pytest.raises(ValueError, match="cannot go back from 5 to 4"):
            phase.advance_to(4)
        with pytest.raises(ValueError, match="cannot go back"):
            phase.advance(-1)


def test_every_consumer_sees_every_event(events: list[ProgressEvent]) -> None:
    others: list[ProgressEvent] = []
    with ProgressStream(events.append, others.append).phase("work"):
        pass
    assert events == others
    assert len(events) == 2


def test_bars_show_phases_and_vanish_at_the_end() -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=80)
    bars = TerminalBars(console)
    stream = ProgressStream(bars)
    with stream.phase("outer", 2) as outer:
        with stream.phase("inner"):
            pass
        outer.advance(1)
        outer.advance(1)
    assert "outer" in text.getvalue()
    assert bars._bars is None
    assert bars._tasks == {}
    # A second phase after the end draws again.
    with stream.phase("again", 1):
        pass
    assert "again" in text.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "progress", "bars"),
    [(Terminal(), True, 1), (Terminal(), False, 0), (io.StringIO(), True, 0)],
)
def test_a_bar_needs_a_terminal_and_the_users_consent(
    stream: io.StringIO, progress: bool, bars: int
) -> None:
    consumers = progress_consumers(TelemetrySettings(progress=progress), stream)
    assert sum(isinstance(item, TerminalBars) for item in consumers) == bars
    assert log_progress in consumers
    assert not any(isinstance(item, ProgressLines) for item in consumers)


@pytest.mark.parametrize(
    ("stream", "progress", "lines"),
    [(Terminal(), True, 0), (io.StringIO(), False, 0), (io.StringIO(), True, 1)],
)
def test_lines_need_a_verb_that_wants_them_and_no_terminal(
    stream: io.StringIO, progress: bool, lines: int
) -> None:
    settings = TelemetrySettings(progress=progress)
    consumers = progress_consumers(settings, stream, has_lines=True)
    assert sum(isinstance(item, ProgressLines) for item in consumers) == lines


def lines_of(total: int | None, steps: int) -> list[str]:
    stream = io.StringIO()
    with ProgressStream(ProgressLines(stream)).phase("work", total, "kernels") as phase:
        for _ in range(steps):
            phase.advance()
    return stream.getvalue().splitlines()


def test_a_line_says_how_much_there_is_and_one_more_follows_for_each_tenth() -> None:
    assert lines_of(25, 25) == [
        f"work: {done} of 25 kernels" for done in (0, 3, 5, 8, 10, 13, 15, 18, 20, 23, 25)
    ]
    assert lines_of(2, 2) == [f"work: {done} of 2 kernels" for done in (0, 1, 2)]


def test_work_of_no_or_unknown_amount_has_one_line() -> None:
    assert lines_of(0, 0) == ["work: 0 of 0 kernels"]
    assert lines_of(None, 3) == ["work: begun"]


def test_nobody_who_closes_the_stream_stops_the_work() -> None:
    stream = io.StringIO()
    stream.close()
    with ProgressStream(ProgressLines(stream)).phase("work", 1) as phase:
        phase.advance()
    assert phase.done == 1


def test_a_log_gets_ends_at_info_and_the_middle_at_debug() -> None:
    seen: list[tuple[str, str]] = []

    class Log:
        def __getattr__(self, level: str) -> Any:
            return lambda event, **fields: seen.append((level, event))

    log = Log()
    with ProgressStream(lambda event: log_progress(event, log)).phase("work") as phase:
        phase.advance()
    assert seen == [
        ("info", "phase.started"), ("debug", "phase.advanced"), ("info", "phase.finished"),
    ]  # fmt: skip
