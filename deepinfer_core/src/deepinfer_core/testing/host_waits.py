"""Does work on a device's stream make the host wait, or let data decide a shape?

Both keep a device idle between steps, and neither can be recorded in a graph. On a CPU they cost
nothing and go unnoticed; under ``no_host_waits`` they raise there too. What is caught: reading a
number or a list out of a tensor, operators whose result has a shape that depends on the data,
indexing with a mask, constants made from Python numbers in the middle of a step, operators over
tensors of several devices, and copies between devices that are not queued.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["HostWait", "HostWatch", "no_host_waits"]

_READS = frozenset({"tolist", "item", "cpu", "__bool__", "__int__", "__float__", "__index__"})
"""Methods of a tensor that read it on the host."""

_WAITING = frozenset(
    {
        "_local_scalar_dense",
        "_unique",
        "_unique2",
        "allclose",
        "argwhere",
        "bincount",
        "equal",
        "histc",
        "is_nonzero",
        "item",
        "masked_select",
        "multinomial",
        "nonzero",
        "nonzero_numpy",
        "one_hot",
        "unique_consecutive",
        "unique_dim",
    }
)
"""Operators that fetch numbers or size their result by the data."""

_INDEXING = frozenset({"index", "index_put", "index_put_", "_index_put_impl_"})
_COPIES = frozenset({"_to_copy", "copy_", "to"})


class HostWait(AssertionError):
    """Something waited."""


class HostWatch:
    """Whether somebody looks.

    Attributes:
        lifted: how many pieces of code that may wait are under way.
        seen: operators that were looked at; a test that saw none proves nothing.
    """

    def __init__(self) -> None:
        self.lifted = 0
        self.seen = 0

    def permitting(self, component: Any) -> Any:
        """A stand-in for a component whose methods may wait: a CPU backend's own business."""
        return _Permitting(component, self)

    @contextmanager
    def lift(self) -> Iterator[None]:
        """Let anything happen for a while."""
        self.lifted += 1
        try:
            yield
        finally:
            self.lifted -= 1


@contextmanager
def no_host_waits() -> Iterator[HostWatch]:
    """Raise ``HostWait`` where the host would wait for a device, on this thread."""
    watch = HostWatch()
    with _Functions(watch), _Operators(watch):
        yield watch


class _Permitting:
    def __init__(self, component: Any, watch: HostWatch) -> None:
        self._component = component
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._component, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            with self._watch.lift():
                return found(*arguments, **options)

        return call


class _Functions(TorchFunctionMode):
    """Sees methods of tensors by name; some never reach the dispatcher on a CPU."""

    def __init__(self, watch: HostWatch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        name = getattr(func, "__name__", "")
        if not self._watch.lifted:
            if name in _READS:
                raise HostWait(f"{name}() reads a tensor on the host")
            if func in (torch.tensor, torch.as_tensor):
                raise HostWait(f"{name}() makes a constant on the host")
        return func(*args, **(kwargs or {}))


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, watch: HostWatch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._watch = watch

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if not self._watch.lifted:
            self._watch.seen += 1
            complaint = _complaint(func, name, args, kwargs)
            if complaint:
                raise HostWait(f"{name}: {complaint}")
        if name == "copy_" and _leaves_meta(*args[:2]):
            return args[0]  # there is nothing to copy, but the copy was rightly queued
        return func(*args, **kwargs)


def _complaint(func: Any, name: str, args: Any, kwargs: Any) -> str:
    if name in _WAITING:
        return "waits for the device"
    if name in _INDEXING and any(_is_mask(index) for index in args[1]):
        return "a mask as index has a result of unknown shape"
    if name == "where" and len(args) == 1:
        return "lists positions, whose number depends on the data"
    if _repeats_by_tensor(func) and kwargs.get("output_size") is None:
        return "repeats without output_size have a result of unknown shape"
    return _copy_complaint(name, args, kwargs) if name in _COPIES else _mixture(args)


def _repeats_by_tensor(func: Any) -> bool:
    return str(func) in ("aten.repeat_interleave.Tensor", "aten.repeat_interleave.self_Tensor")


def _copy_complaint(name: str, args: Any, kwargs: Any) -> str:
    if name == "copy_":
        source, target = args[1].device, args[0].device
        is_queued = kwargs.get("non_blocking", args[2:] == (True,))
    else:
        source, target = args[0].device, _named_device(args, kwargs)
        is_queued = kwargs.get("non_blocking", any(part is True for part in args))
    if target is None or target.type == source.type or is_queued:
        return ""
    return f"a copy from {source} to {target} that is not queued"


def _named_device(args: Any, kwargs: Any) -> torch.device | None:
    named = [kwargs.get("device"), *args[1:]]
    return next((part for part in named if isinstance(part, torch.device)), None)


def _mixture(args: Any) -> str:
    devices = {str(part.device) for part in _tensors(args) if part.dim()}
    return f"tensors on {', '.join(sorted(devices))}" if len(devices) > 1 else ""


def _tensors(args: Any) -> Iterator[torch.Tensor]:
    for part in args:
        if isinstance(part, torch.Tensor):
            yield part
        elif isinstance(part, list | tuple):
            yield from _tensors(part)


def _is_mask(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)


def _leaves_meta(target: torch.Tensor, source: torch.Tensor) -> bool:
    return source.device.type == "meta" and target.device.type != "meta"
