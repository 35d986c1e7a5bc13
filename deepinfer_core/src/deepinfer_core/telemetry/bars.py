"""How does progress look on a terminal?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepinfer_core.telemetry.progress import PhaseAdvanced, PhaseStarted, ProgressEvent

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

__all__ = ["TerminalBars"]


class TerminalBars:
    """A consumer that draws one bar a phase on standard error and removes it at the end.

    Args:
        console: where to draw; None is standard error.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, event: ProgressEvent) -> None:
        """Draw an event."""
        if isinstance(event, PhaseStarted):
            self._start(event)
        elif self._bars is not None and event.phase in self._tasks:
            task = self._tasks[event.phase]
            if isinstance(event, PhaseAdvanced):
                self._bars.update(task, completed=event.done)
                return
            self._bars.remove_task(self._tasks.pop(event.phase))
            if not self._tasks:
                self._bars.stop()
                self._bars = None

    def _start(self, event: PhaseStarted) -> None:
        if self._bars is None:
            self._bars = self._new_bars()
            self._bars.start()
        self._tasks[event.phase] = self._bars.add_task(event.phase, total=event.total)

    def _new_bars(self) -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(show_speed=True),
            console=self._console or Console(stderr=True),
            transient=True,
        )
