"""How does a test record steps where no device can?

A recording here is the work itself, done again at every repetition with the host's decisions of the
recorded step. That shows whether one recording serves other steps than its own.
"""

from __future__ import annotations

from collections.abc import Callable

from deepinfer_core.interfaces.component import Properties
from deepinfer_core.interfaces.recording import Recorder, Recording
from deepinfer_core.reference.device import CpuDevice

__all__ = ["Rerun", "RerunDevice"]


class Rerun(Recording):
    """Work that is done again.

    Attributes:
        repeats: how often it was.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self.repeats = 0

    @property
    def memory_bytes(self) -> int:
        """Nothing is kept but the work."""
        return 0

    def repeat(self) -> None:
        """Do it."""
        self.repeats += 1
        self._work()


class _Rerunning(Recorder):
    """Keeps the work."""

    def __init__(self) -> None:
        self.made: list[Rerun] = []

    def record(self, work: Callable[[], None]) -> Recording:
        """Do it once."""
        work()
        recording = Rerun(work)
        self.made.append(recording)
        return recording


class RerunDevice(CpuDevice):
    """A CPU whose launches can be recorded.

    Attributes:
        recordings: all of them, in order.
    """

    def __init__(self) -> None:
        self._recorder = _Rerunning()
        self.recordings = self._recorder.made

    @property
    def properties(self) -> Properties:
        """Those of a device that records."""
        return Properties(batch_invariant="always", deterministic="always", graph_safe="always")

    @property
    def recorder(self) -> Recorder:
        """Keeps work."""
        return self._recorder
