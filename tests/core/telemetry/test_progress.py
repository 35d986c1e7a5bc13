"""Is progress a stream that starts, advances and always finishes?"""

import contextlib
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


def lines_of(total: int | None, steps: int, step_s: float) -> list[str]:
    """Lines of a phase of equal steps, whose clock is read again and again."""
    stream, now_s = io.StringIO(), [0.0]

    def clock_s() -> float:
        return now_s[0]

    lines = ProgressLines(stream, clock_s)
    with ProgressStream(lines, clock_s=clock_s).phase("work", total, "kernels") as phase:
        for _ in range(steps):
            now_s[0] += step_s
            phase.advance()
    return stream.getvalue().splitlines()


def test_short_work_has_a_line_where_it_begins_and_one_where_it_ends() -> None:
    assert lines_of(25, 25, 0.0625) == ["work: 0 of 25 kernels", "work: 25 of 25 kernels in 1.6 s"]
    assert lines_of(4, 4, 1.125) == ["work: 0 of 4 kernels", "work: 4 of 4 kernels in 4.5 s"]
    assert lines_of(0, 0, 1) == ["work: 0 of 0 kernels", "work: 0 of 0 kernels in 0.0 s"]


def test_long_work_has_a_line_in_five_seconds_at_most() -> None:
    assert lines_of(11, 11, 2) == [
        "work: 0 of 11 kernels",
        *[f"work: {done} of 11 kernels" for done in (3, 6, 9)],
        "work: 11 of 11 kernels in 22.0 s",
    ]
    assert lines_of(2, 2, 5)[1:] == [
        "work: 1 of 2 kernels", "work: 2 of 2 kernels", "work: 2 of 2 kernels in 10.0 s",
    ]  # fmt: skip


def test_work_of_unknown_amount_says_how_much_is_done() -> None:
    assert lines_of(None, 3, 4) == [
        "work: begun", "work: 2 kernels", "work: 3 kernels in 12.0 s",
    ]  # fmt: skip


def test_work_that_failed_says_so() -> None:
    stream = io.StringIO()
    lines = ProgressStream(ProgressLines(stream), clock_s=lambda: 0.0)
    with contextlib.suppress(KeyError), lines.phase("work", 2, "kernels") as phase:
        phase.advance()
        raise KeyError
    assert stream.getvalue().splitlines()[-1] == "work: failed, 1 of 2 kernels in 0.0 s"


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
