"""How are calls of compiled kernels noted down and made again without the interpreter?

Kernels are noted by ``kernels/recording.c``, with their addresses; operations of torch between them
are noted here and done again by torch. All tensors that turn up are kept, so addresses stay valid.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from deepinfer_core.interfaces.recording import Recorder, Recording
from deepinfer_core.native.library import bind, open_library

__all__ = ["KernelRecorder", "kernel_recorder"]

_EMPTY = {"aten::empty", "aten::empty_like", "aten::new_empty", "aten::empty_strided"}
"""They only make room."""

_FROM_HOST = {"aten::lift_fresh"}
"""They bring numbers from the host, which are other ones the next time."""


class _Repeatable(Recording):
    """Kernel calls and operations of torch in their order."""

    def __init__(self, steps: Sequence[Callable[[], object]], kept: Sequence[torch.Tensor]) -> None:
        self._steps = tuple(steps)
        self._kept = tuple(kept)
        sizes = {tensor.untyped_storage().data_ptr(): tensor.nbytes for tensor in kept}
        self._bytes = sum(sizes.values())

    @property
    def memory_bytes(self) -> int:
        """Bytes of all tensors in between."""
        return self._bytes

    def repeat(self) -> None:
        """Make all calls again."""
        for step in self._steps:
            step()


class KernelRecorder(Recorder):
    """Notes down calls of the functions of one library.

    Args:
        library: the compiled kernels.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self.begin = _function(library, "di_recording_begin", ctypes.c_void_p)
        self.count = _function(library, "di_recording_count", ctypes.c_int64, ctypes.c_void_p)
        self.end = _function(library, "di_recording_end", ctypes.c_int, ctypes.c_void_p)
        self.free = _function(library, "di_recording_free", None, ctypes.c_void_p)
        self.replay = bind(library, "di_replay", "pll")

    def record(self, work: Callable[[], None]) -> Recording | None:
        """Do work and note down what it does; see ``Recorder``."""
        calls = self.begin()
        if not calls:
            work()
            return None
        notes = _Notes(self, calls)
        code = -1
        try:
            with notes:
                work()
            code = self.end(calls)
        finally:
            if code:
                self.end(calls)
                self.free(calls)
        if code:
            return None
        notes.close_run()
        recording = _Repeatable(notes.steps, notes.kept)
        freed = weakref.finalize(recording, self.free, calls)
        # At the end of the program a step that was launched ahead may still be about to run.
        freed.atexit = False
        return None if notes.is_spoilt else recording


class _Notes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What torch does while kernel calls are noted.

    Attributes:
        steps: what is to be done again.
        kept: tensors that must stay.
        is_spoilt: something cannot be done again.
    """

    def __init__(self, recorder: KernelRecorder, calls: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recorder = recorder
        self._calls = calls
        self._noted = 0
        self.steps: list[Callable[[], object]] = []
        self.kept: list[torch.Tensor] = []
        self.is_spoilt = False

    def close_run(self) -> None:
        """The kernel calls up to here belong together."""
        count = self._recorder.count(self._calls)
        if count > self._noted:
            replay = self._recorder.replay
            self.steps.append(functools.partial(replay, self._calls, self._noted, count))
            self._noted = count

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Do an operation and note how to do it again."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = func._schema.name
        results = result if isinstance(result, list | tuple) else (result,)
        if not all(isinstance(one, torch.Tensor) for one in results) or name in _FROM_HOST:
            self.is_spoilt = True
        elif name in _EMPTY:
            self.kept.append(result)
        elif func._schema.is_mutable:
            self._again(functools.partial(func, *args, **kwargs))
        elif not _are_views(results, args):
            self.kept.extend(results)
            self._again(functools.partial(_renew, results, func, args, kwargs))
        return result

    def _again(self, step: Callable[[], object]) -> None:
        self.close_run()
        self.steps.append(step)


def _renew(
    results: Sequence[torch.Tensor],
    func: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> None:
    """Do an operation again; its results go where the recorded ones are."""
    new = func(*args, **kwargs)
    for result, one in zip(results, new if isinstance(new, list | tuple) else (new,), strict=True):
        result.copy_(one)


def _are_views(results: Sequence[torch.Tensor], args: Sequence[Any]) -> bool:
    """Whether all results are in the memory of the first argument."""
    if not args or not isinstance(args[0], torch.Tensor):
        return False
    memory = args[0].untyped_storage().data_ptr()
    return all(result.untyped_storage().data_ptr() == memory for result in results)


def _function(
    library: ctypes.CDLL, name: str, result: type[Any] | None, *arguments: type[Any]
) -> Callable[..., Any]:
    function = getattr(library, name)
    function.restype = result
    function.argtypes = arguments
    found: Callable[..., Any] = function
    return found


@functools.cache
def kernel_recorder(cache_dir: str) -> KernelRecorder:
    """The recorder of the library in this folder.

    Args:
        cache_dir: folder of compiled kernels.

    Raises:
        DeviceError: the kernels cannot be compiled or loaded.
    """
    return KernelRecorder(open_library(cache_dir))
