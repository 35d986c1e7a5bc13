"""How does a backend show its tile kernels to those who test and time them?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from deepinfer_core.interfaces.operators.wanted import Build

if TYPE_CHECKING:
    import torch

__all__ = ["Build", "KernelCatalogue", "Kernels"]


class Kernels(ABC):
    """Runs kernels, whatever that takes: compiles them for a device, or interprets them."""

    @abstractmethod
    def call(self, build: Build, spec: Any, tuning: Any, /, **tensors: torch.Tensor) -> None:
        """Run one kernel on the current stream.

        Args:
            build: of the kernel's file.
            spec: the operator's spec; hashable.
            tuning: the backend's choices; hashable.
            tensors: all arguments of the PrimFunc by name; outputs are overwritten.
        """

    @property
    def built(self) -> int | None:
        """Kernels that were compiled or loaded so far; None where that never happens."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCatalogue:
    """The kernels of one backend: one operator a file.

    Attributes:
        backend: first part of its components' names, e.g. ``nvidia``.
        dialect: TileLang dialect that the kernels are written in.
        architectures: what they must lower for, e.g. ``sm_90a``.
        folder: where the files are.
        load: from an operator's name to its ``build``; imports the file.
        tune: from an operator's name and a spec to the tuning that is used for it.
        open: kernels compiled for the device of this machine; takes ``kernels.cache_dir``, below
            which they are kept; empty: the compiler's own folder is used.
        measured: JSON of what was measured on a device: operator to date, hardware and commit.
        also: from an operator's name and a spec to other tunings that launch code may choose; cases
            judge the kernel with each.
    """

    backend: str
    dialect: Literal["cuda", "ascend"]
    architectures: tuple[str, ...]
    folder: Path
    load: Callable[[str], Build]
    tune: Callable[[str, Any], Any]
    open: Callable[[str], Kernels]
    measured: Path
    also: Callable[[str, Any], tuple[Any, ...]] = lambda _operator, _spec: ()

    @property
    def operators(self) -> tuple[str, ...]:
        """Names of the operators, sorted: files that are called family_operator."""
        families = ("attention", "gemm", "transform", "sampler", "all_to_all")
        names = (path.stem for path in self.folder.glob("*.py"))
        return tuple(sorted(name for name in names if name.startswith(families)))
