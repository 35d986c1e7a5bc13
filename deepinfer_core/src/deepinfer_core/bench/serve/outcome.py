"""How is what was found told: as objects, as a table, as a plot?"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deepinfer_core.bench.percentile import percentile
from deepinfer_core.bench.serve import pareto, report
from deepinfer_core.bench.serve.sweep import LevelResult
from deepinfer_core.bench.stamp import Stamp, commit_of
from deepinfer_core.plugin.cpu_facts import cpu_facts

__all__ = ["Outcome"]

_COLUMNS = (
    "load", "requests/s", "tokens/s", "a user's", "queue p50", "p99", "first token p50", "p99",
    "between p50", "p99", "whole p50", "p99", "failed", "cached", "busy",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a campaign found.

    Attributes:
        alone: of one user alone.
        results: of each load.
        load_name: what stands in the brackets of the figures' names, behind the load itself.
        url: of the service.
        service_hardware: in words; empty: unknown.
        command: that asked for it.
    """

    alone: LevelResult
    results: Sequence[LevelResult]
    load_name: str
    url: str
    service_hardware: str
    command: str

    @property
    def stamp(self) -> Stamp:
        """Of all figures; the commit is the generator's."""
        facts = cpu_facts()
        generator = f"generator on {facts['model']}, {facts['cores']} cores"
        service = self.service_hardware or f"unknown, service at {self.url}"
        date = datetime.now(UTC).strftime("%Y-%m-%d")
        return Stamp(
            hardware=f"{service}; {generator}", date=date, commit=commit_of(Path(__file__))
        )

    @property
    def warnings(self) -> list[str]:
        """One line for each load whose figures may be the generator's."""
        return [
            f"the generator was the bottleneck at {one.level.text}: "
            f"{one.headroom.busy_share:.2f} of a core busy, "
            f"timers {one.headroom.lag_p99_s * 1e3:.1f} ms late"
            for one in self.results
            if report.was_bottleneck(one)
        ]

    def to_json(self) -> list[dict[str, Any]]:
        """The objects that ``deepinfer bench serve --json`` prints; an interface."""
        stamp = self.stamp
        return [
            figure.to_json(stamp)
            | {
                "command": self.command,
                "requests": len(one.exchanges),
                "failed": report.failures(one),
                "generator_was_bottleneck": report.was_bottleneck(one),
            }
            for one in self.results
            for figure in report.level_figures(
                one, self.alone, f"{one.level.text},{self.load_name}"
            )
        ]

    def head_lines(self) -> list[str]:
        """What holds for the whole table."""
        stamp = self.stamp
        return [
            f"load      {self.load_name}",
            f"hardware  {stamp.hardware}",
            f"program   {stamp.commit}, {stamp.date}",
            "times     ms; speeds in tokens/s; cached: share of the prompts' tokens; busy: of the "
            "generator's core",
        ]

    def table(self) -> list[tuple[str, ...]]:
        """One row a load, that of the user alone first."""
        rows = [_row("alone", self.alone)]
        return [_COLUMNS, *rows, *(_row(one.level.text, one) for one in self.results)]

    def draw(self, file: Path) -> None:
        """Write the plot of throughput against the speed of a user.

        Loads without a speed, because answers came as one event, are left out.
        """
        points = [
            pareto.Point(
                label=one.level.text,
                user_speed=statistics.median(speeds),
                throughput=report.rates(one)["output_tokens"],
            )
            for one in self.results
            if (speeds := report.speeds(one))
        ]
        pareto.draw(points, f"{self.load_name}\n{self.stamp.hardware}", file)


def _row(name: str, result: LevelResult) -> tuple[str, ...]:
    rates, durations = report.rates(result), report.durations(result)
    speeds = report.speeds(result)
    prompt = sum(one.prompt_tokens for one in result.good)
    cached = sum(one.cached_tokens for one in result.good)
    times = [
        f"{percentile(durations[which], percent) * 1e3:.4g}" if durations[which] else "-"
        for which in ("queue", "first_token", "inter_token", "request")
        for percent in (50, 99)
    ]
    failed = ", ".join(f"{count} {kind}" for kind, count in report.failures(result).items())
    return (
        name,
        f"{rates['requests']:.4g}",
        f"{rates['output_tokens']:.4g}",
        f"{statistics.median(speeds):.4g}" if speeds else "-",
        *times,
        failed or "0",
        f"{cached / prompt:.2f}" if prompt else "-",
        f"{result.headroom.busy_share:.2f}",
    )
