"""How do the launches of one piece of work become one launch?

Capturing records launches without running them. The work must have run before, so that kernels are
compiled and libraries have their handles: a capture would refuse both.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from deepinfer_core.errors import DeviceError
from deepinfer_core.interfaces.device import Graph

__all__ = ["CudaGraph", "GraphPool", "capture"]


class CudaGraph(Graph):
    """Captured launches.

    Args:
        graph: after its capture.
    """

    def __init__(self, graph: torch.cuda.CUDAGraph) -> None:
        self._graph = graph

    def replay(self) -> None:
        """Launch everything on the current stream."""
        self._graph.replay()


class GraphPool:
    """Memory that the living graphs of a device share: they replay one after another.

    Torch gives a pool up with its last graph, and refuses to record into it then.

    Args:
        new: makes the handle of a pool, ``torch.cuda.graph_pool_handle``.
    """

    def __init__(self, new: Callable[[], Any]) -> None:
        self._new = new
        self._handle: Any = None
        self._graphs: weakref.WeakSet[Graph] = weakref.WeakSet()

    def handle(self) -> Any:
        """The pool to record into."""
        if not self._graphs:
            self._handle = self._new()
        return self._handle

    def add(self, graph: Graph) -> None:
        """Remember a graph that was recorded into it, without keeping it alive."""
        self._graphs.add(graph)


def capture(work: Callable[[], None], stream: torch.cuda.Stream, pool: Any) -> torch.cuda.CUDAGraph:
    """Record the launches of ``work``.

    Args:
        work: is called once; must not wait for the device.
        stream: the recording takes place on it; graphs that share memory share it.
        pool: memory that graphs share, from ``torch.cuda.graph_pool_handle``.

    Raises:
        DeviceError: the work waited for the device, or did something else that cannot be recorded.
    """
    graph = torch.cuda.CUDAGraph()
    # Other threads may go on allocating: only this one's calls are held to the rules.
    recording = torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local")
    before = torch.cuda.current_stream(stream.device)
    try:
        with torch.cuda.device(stream.device), recording:
            work()
    except RuntimeError as error:
        # A recording that fails leaves its stream as the current one.
        torch.cuda.set_stream(before)
        first = str(error).partition("\n")[0]
        raise DeviceError(
            f"asked to capture a step, found {first}",
            hint="a component that promises graph_safe waited for the device; report it",
        ) from error
    return graph
