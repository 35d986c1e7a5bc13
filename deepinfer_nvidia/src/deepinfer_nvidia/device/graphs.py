"""How do the launches of one piece of work become one launch?

A CUDA graph records launches without running them. The work must have run before, so that kernels
are compiled and libraries have their handles: a capture would refuse both.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from deepinfer_core.errors import DeviceError
from deepinfer_core.interfaces.recording import Recorder, Recording

__all__ = ["CudaGraph", "GraphPool", "GraphRecorder"]


class CudaGraph(Recording):
    """Captured launches.

    Args:
        graph: after its capture.
        memory_bytes: by which its capture enlarged the memory that graphs share.
    """

    def __init__(self, graph: torch.cuda.CUDAGraph, memory_bytes: int) -> None:
        self._graph = graph
        self._memory_bytes = memory_bytes

    @property
    def memory_bytes(self) -> int:
        """What the device had to give for it beyond what other graphs had taken."""
        return self._memory_bytes

    def repeat(self) -> None:
        """Launch everything on the current stream."""
        self._graph.replay()


class GraphPool:
    """Memory that the living graphs of a device share: they are repeated one after another.

    Torch gives a pool up with its last graph, and refuses to record into it then.

    Args:
        new: makes the handle of a pool, ``torch.cuda.graph_pool_handle``.
    """

    def __init__(self, new: Callable[[], Any]) -> None:
        self._new = new
        self._handle: Any = None
        self._graphs: weakref.WeakSet[Recording] = weakref.WeakSet()

    def handle(self) -> Any:
        """The pool to record into."""
        if not self._graphs:
            self._handle = self._new()
        return self._handle

    def add(self, graph: Recording) -> None:
        """Remember a graph that was recorded into it, without keeping it alive."""
        self._graphs.add(graph)


class GraphRecorder(Recorder):
    """Captures what is launched on one GPU.

    Args:
        stream: captures take place on it, because graphs that share memory share it.
    """

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        self._pool = GraphPool(torch.cuda.graph_pool_handle)

    def record(self, work: Callable[[], None]) -> Recording:
        """Capture the launches of ``work``, then launch them once; see ``Recorder``.

        Raises:
            DeviceError: the work waited for the device, or did something else that cannot be
                recorded.
        """
        recording = _capture(work, self._stream, self._pool.handle())
        self._pool.add(recording)
        recording.repeat()
        return recording


def _capture(work: Callable[[], None], stream: torch.cuda.Stream, pool: Any) -> CudaGraph:
    graph, place = torch.cuda.CUDAGraph(), stream.device
    # Other threads may go on allocating: only this one's calls are held to the rules.
    capture = torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local")
    before = torch.cuda.current_stream(place)
    try:
        with torch.cuda.device(place), capture:
            reserved_bytes = torch.cuda.memory_reserved(place)
            work()
            taken_bytes = torch.cuda.memory_reserved(place) - reserved_bytes
    except RuntimeError as error:
        # A capture that fails leaves its stream as the current one.
        torch.cuda.set_stream(before)
        first = str(error).partition("\n")[0]
        raise DeviceError(
            f"asked to capture a step, found {first}",
            hint="a component that promises graph_safe waited for the device; report it",
        ) from error
    return CudaGraph(graph, taken_bytes)
