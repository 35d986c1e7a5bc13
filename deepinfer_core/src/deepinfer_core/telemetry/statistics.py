"""What did an engine do in the last few seconds, in one line?

A window runs from one line to the next. Its figures are differences of two readings of the board,
so they cost nothing between lines; a mean or a rate without a denominator is None. A window is cut
by whatever happens first after it is due: in an idle engine that is the next arrival, and the line
then covers the idle time and says so.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock

from deepinfer_core.telemetry.board import Board, Series
from deepinfer_core.telemetry.logs import get_logger
from deepinfer_core.telemetry.metric_list import DRAFT_PLACES, STEP_KINDS

__all__ = ["Figures", "Report", "StatisticsLine", "Window", "figures_of", "log_figures"]

Figures = Mapping[str, int | float | bool | None]
"""Names and values of one line; seconds and ratios are rounded to six digits."""

Report = Callable[[Figures], None]

_Place = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Two readings of one board.

    Attributes:
        length_s: between them.
        before: all series at its beginning; empty at the beginning of the engine.
        after: all series at its end.
        slowest_first_token_s: the longest time to a first token in between; None without one.
    """

    length_s: float
    before: tuple[Series, ...]
    after: tuple[Series, ...]
    slowest_first_token_s: float | None = None


class _Differences:
    """Growth between the ends of a window, and levels at its end."""

    def __init__(self, window: Window) -> None:
        self._before = {_place(series): series for series in window.before}
        self._after = {_place(series): series for series in window.after}

    def level(self, *place: str) -> float:
        return self._after[place].value

    def grown(self, *place: str) -> float:
        """By how much a counter, or the sum of a histogram, grew."""
        before = self._before.get(place)
        return _growth(before.value if before else 0, self._after[place].value)

    def observed(self, *place: str) -> int:
        """How many observations a histogram got."""
        before = self._before.get(place)
        return int(_growth(sum(before.counts if before else ()), sum(self._after[place].counts)))

    def mean(self, *place: str) -> float | None:
        return _ratio(self.grown(*place), self.observed(*place))


def figures_of(window: Window) -> Figures:
    """The figures of one window."""
    seen = _Differences(window)
    steps = {kind: seen.observed("step_seconds", kind) for kind in STEP_KINDS}
    busy_s = {kind: seen.grown("step_seconds", kind) for kind in STEP_KINDS}
    figures: dict[str, int | float | bool | None] = {
        "window_s": window.length_s,
        "is_idle": not sum(steps.values()),
        "steps": sum(steps.values()),
        **{f"{kind}_steps": steps[kind] for kind in STEP_KINDS},
        **{f"{kind}_s": busy_s[kind] for kind in STEP_KINDS},
        "busy_ratio": _ratio(sum(busy_s.values()), window.length_s),
        **_flow(seen, window.length_s),
        **_stock(seen),
        **_drafts(seen),
        "first_token_mean_s": seen.mean("time_to_first_token_seconds"),
        "first_token_max_s": window.slowest_first_token_s,
        "inter_token_mean_s": seen.mean("inter_token_latency_seconds"),
        "queue_mean_s": seen.mean("queue_seconds"),
        "step_rows_mean": seen.mean("step_rows"),
        "step_schedule_mean_s": seen.mean("step_schedule_seconds"),
        "step_wait_mean_s": seen.mean("step_wait_seconds"),
        "step_output_mean_s": seen.mean("step_output_seconds"),
    }
    return {name: _short(value) for name, value in figures.items()}


def _flow(seen: _Differences, length_s: float) -> dict[str, int | float | None]:
    """What came and went."""
    prompt_tokens = seen.grown("prompt_tokens_total")
    return {
        "prompt_rows_per_s": _ratio(seen.grown("rows_total", "prompt"), length_s),
        "drawn_tokens_per_s": _ratio(seen.grown("generation_tokens_total"), length_s),
        "arrived": int(seen.grown("requests_total")),
        "finished": seen.observed("request_seconds"),
        "aborted": int(seen.grown("requests_finished_total", "abort")),
        "failed": int(seen.grown("requests_finished_total", "error")),
        "preempted": int(seen.grown("preemptions_total")),
        "prompt_tokens_mean": seen.mean("request_prompt_tokens"),
        "output_tokens_mean": seen.mean("request_generation_tokens"),
        "cached_prompt_ratio": _ratio(seen.grown("prompt_cached_tokens_total"), prompt_tokens),
        "evicted_blocks": int(seen.grown("prefix_cache_evicted_blocks_total")),
    }


def _drafts(seen: _Differences) -> dict[str, int | float | None]:
    """What became of drafts; by place only if any were verified."""
    verified = [seen.grown("draft_tokens_total", place) for place in DRAFT_PLACES]
    accepted = [seen.grown("accepted_draft_tokens_total", place) for place in DRAFT_PLACES]
    rounds = seen.grown("draft_rounds_total")
    by_place = {
        f"accepted_ratio_{place}": _ratio(right, all_of_it)
        for place, right, all_of_it in zip(DRAFT_PLACES, accepted, verified, strict=True)
        if all_of_it
    }
    return {
        "drafted_tokens": int(sum(verified)),
        "accepted_tokens": int(sum(accepted)),
        "accepted_ratio": _ratio(sum(accepted), sum(verified)),
        "drafted_mean": _ratio(sum(verified), rounds),
        "accepted_mean": _ratio(sum(accepted), rounds),
        **by_place,
    }


def _stock(seen: _Differences) -> dict[str, int | float | None]:
    """What the engine holds at the end."""
    slots = {state: seen.level("state_slots", state) for state in ("used", "snapshot", "free")}
    return {
        "running": int(seen.level("requests_running")),
        "waiting": int(seen.level("requests_waiting")),
        "block_usage_ratio": seen.level("kv_cache_usage_ratio"),
        "idle_blocks": int(seen.level("kv_cache_blocks", "idle")),
        "slot_usage_ratio": _ratio(slots["used"], sum(slots.values())),
        "snapshots": int(slots["snapshot"]),
    }


class StatisticsLine:
    """Cuts windows and reports each.

    Nothing that goes wrong in it reaches the engine: the first failure is logged and ends it.

    Args:
        board: what is reported on.
        interval_s: least length of a window, above 0.
        started_s: when the first window begins.
        report: gets the figures.
    """

    def __init__(
        self, board: Board, interval_s: float, *, started_s: float, report: Report
    ) -> None:
        self._board = board
        self._interval_s = interval_s
        self._report = report
        self._began_s = started_s
        self._before: tuple[Series, ...] = ()
        self._slowest_s: float | None = None
        self._is_broken = False
        self._lock = Lock()

    def saw_first_tokens(self, seconds: Sequence[float]) -> None:
        """Remember the slowest of a step's first tokens; mostly there are none."""
        if seconds:
            with self._lock:
                self._slowest_s = max(*seconds, self._slowest_s or 0.0)

    def tick(self, now_s: float) -> None:
        """End the window if it is long enough; never raises.

        Args:
            now_s: on the clock of ``started_s``.
        """
        if now_s - self._began_s < self._interval_s or self._is_broken:
            return
        with self._lock:
            if now_s - self._began_s < self._interval_s or self._is_broken:
                return  # another thread ended it
            try:
                self._cut(now_s)
            except Exception:  # noqa: BLE001 - the receiver of the figures is foreign code
                self._is_broken = True
                _tell_failure()

    def _cut(self, now_s: float) -> None:
        after = tuple(self._board.read())
        window = Window(
            length_s=now_s - self._began_s,
            before=self._before,
            after=after,
            slowest_first_token_s=self._slowest_s,
        )
        self._began_s, self._before, self._slowest_s = now_s, after, None
        self._report(figures_of(window))


def log_figures(figures: Figures) -> None:
    """Log the figures of a window as one event."""
    get_logger(__name__).info("statistics.gathered", **figures)


def _tell_failure() -> None:
    try:
        get_logger(__name__).exception("statistics.failed", hint="there will be no further lines")
    except Exception:  # noqa: BLE001 - where logging itself is broken, one way is left
        traceback.print_exc()


def _place(series: Series) -> _Place:
    return (series.metric.name, *series.labels)


def _growth(before: float, after: float) -> float:
    """A counter that fell was made anew in between, and began at zero."""
    return after - before if after >= before else after


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _short(value: float | None) -> int | float | bool | None:
    return round(value, 6) if isinstance(value, float) else value
