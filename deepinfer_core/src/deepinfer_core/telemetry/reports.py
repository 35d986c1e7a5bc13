"""How do progress and the choice of components become log events?"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

from deepinfer_core.telemetry.bars import TerminalBars
from deepinfer_core.telemetry.lines import ProgressLines
from deepinfer_core.telemetry.logs import get_logger
from deepinfer_core.telemetry.progress import (
    PhaseAdvanced,
    PhaseStarted,
    ProgressConsumer,
    ProgressEvent,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deepinfer_core.config.settings import TelemetrySettings
    from deepinfer_core.plugin.hooks import HookFailure
    from deepinfer_core.plugin.report import Report

__all__ = [
    "log_components",
    "log_hook_failures",
    "log_progress",
    "progress_consumers",
    "shown_progress",
]


def log_progress(event: ProgressEvent, logger: Any = None) -> None:
    """A consumer that logs events; the many in the middle only at level debug."""
    log = logger or get_logger(__name__)
    if isinstance(event, PhaseStarted):
        log.info("phase.started", phase=event.phase, total=event.total, unit=event.unit)
    elif isinstance(event, PhaseAdvanced):
        log.debug(
            "phase.advanced",
            phase=event.phase,
            done=event.done,
            total=event.total,
            detail=event.detail,
        )
    else:
        log.info(
            "phase.finished",
            phase=event.phase,
            done=event.done,
            elapsed_s=event.elapsed_s,
            outcome=event.outcome,
        )


def progress_consumers(
    settings: TelemetrySettings, stream: IO[str], *, has_lines: bool = False
) -> list[ProgressConsumer]:
    """Consumers for a command: the log, and a bar if ``stream`` is a terminal.

    Args:
        settings: whether the user wants to see progress.
        stream: where to show it.
        has_lines: show lines if it is no terminal.
    """
    shown = shown_progress(settings, stream, has_lines=has_lines)
    return [log_progress] if shown is None else [log_progress, shown]


def shown_progress(
    settings: TelemetrySettings, stream: IO[str], *, has_lines: bool = False
) -> ProgressConsumer | None:
    """The same without the log; None: nothing is shown."""
    if settings.progress and stream.isatty():
        from rich.console import Console

        return TerminalBars(Console(file=stream))
    return ProgressLines(stream) if settings.progress and has_lines else None


def log_components(report: Report) -> None:
    """Log the choice once; each fallback is a warning."""
    log = get_logger(__name__)
    log.info("components.resolved", device=report.device.device, picked=report.picked())
    for warning in report.warnings:
        log.warning("component.fell_back", detail=warning)


def log_hook_failures(failures: Sequence[HookFailure]) -> None:
    """Log observers that raised."""
    log = get_logger(__name__)
    for failure in failures:
        log.warning("hook.failed", plugin=failure.plugin, hook=failure.hook, reason=failure.reason)
