"""Which kernels does an engine want, and who compiles them?

In a rehearsal components note down what they would call; whoever asked for it has the list compiled
by as many processes as it likes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Build", "KernelCompiler", "Rehearsal", "WantedKernel"]

Build = Callable[[Any, Any], Any]
"""``build`` of a kernel's file: from spec and tuning to a TileLang PrimFunc; pure."""


class KernelCompiler(ABC):
    """Compiles kernels for one kind of device, into a folder that keeps them.

    Several processes compile at once, so it is hashable and can be pickled, as specs and tunings
    are. It needs no device.
    """

    @abstractmethod
    def keeps(self, build: Build, spec: Any, tuning: Any) -> bool:
        """Whether the folder has this kernel, whole; a quick look that compiles nothing."""

    @abstractmethod
    def keep(self, build: Build, spec: Any, tuning: Any) -> None:
        """See to it that the folder has this kernel.

        Raises:
            Exception: whatever the compiler raises; its own words come last.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedKernel:
    """One kernel that a component will call.

    Attributes:
        compiler: compiles it.
        build: of the kernel's file.
        spec: the operator's spec.
        tuning: the backend's choices.
    """

    compiler: KernelCompiler
    build: Build
    spec: Any
    tuning: Any

    @property
    def operator(self) -> str:
        """Name of the operator: the name of the kernel's file."""
        return self.build.__module__.rpartition(".")[2]


class Rehearsal:
    """The list of one engine."""

    def __init__(self) -> None:
        self._wanted: dict[WantedKernel, None] = {}

    @property
    def wanted(self) -> tuple[WantedKernel, ...]:
        """Every kernel once, in the order of first calls."""
        return tuple(self._wanted)

    def note(self, kernel: WantedKernel) -> None:
        """Put a kernel on the list."""
        self._wanted[kernel] = None
