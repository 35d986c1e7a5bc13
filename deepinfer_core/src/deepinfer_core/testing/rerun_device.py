"""How does a test record steps where no device can?

A recording here is the work itself, done again at every replay with the host's decisions of the
recorded step. That shows whether one recording serves other steps than its own.
"""

from __future__ import annotations

from collections.abc import Callable

from deepinfer_core.interfaces.component import Properties
from deepinfer_core.interfaces.device import Graph
from deepinfer_core.reference.device import CpuDevice

__all__ = ["RerunDevice", "RerunGraph"]


class RerunGraph(Graph):
    """Work that is done again.

    Attributes:
        replays: how often it was.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self.replays = 0

    def replay(self) -> None:
        """Do it."""
        self.replays += 1
        self._work()


class RerunDevice(CpuDevice):
    """A CPU with graphs.

    Attributes:
        graphs: every recording, in order.
    """

    def __init__(self) -> None:
        self.graphs: list[RerunGraph] = []

    @property
    def properties(self) -> Properties:
        """Those of a device with graphs."""
        return Properties(batch_invariant="always", deterministic="always", graph_safe="always")

    def graph(self, work: Callable[[], None]) -> Graph:
        """Keep the work."""
        graph = RerunGraph(work)
        self.graphs.append(graph)
        return graph
