"""How does a backend show its tile kernels to those who test and time them?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from deepinfer_core.interfaces.operators.tunings import KernelTunings
from deepinfer_core.interfaces.operators.wanted import Build, KernelCompiler

if TYPE_CHECKING:
    import torch

__all__ = [
    "Build",
    "KernelCatalogue",
    "KernelLimits",
    "Kernels",
    "is_named",
    "is_tile_kernel",
    "operator_of",
]

_FAMILIES = ("attention_", "gemm_", "transform_", "sampler_", "all_to_all_")


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

    def prepared(self, build: Build, spec: Any, tuning: Any) -> Callable[..., None]:
        """One kernel for many calls: takes the tensors of ``call`` by name.

        Where kernels are compiled, this one is compiled or loaded now.
        """
        return partial(self.call, build, spec, tuning)

    @property
    def built(self) -> int | None:
        """Kernels that were compiled or loaded so far; None where that never happens."""
        return None

    @property
    def compiler(self) -> KernelCompiler | None:
        """Compiles kernels to where these are found; None where nothing is compiled."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLimits:
    """What a kernel's file says it was written for.

    Attributes:
        architectures: those that it compiles for; None: all of its catalogue.
        spilled_bytes: registers of a thread that may spill, as measured and accepted.
        takes: whether it serves a spec of its operator.
    """

    architectures: tuple[str, ...] | None = None
    spilled_bytes: int = 0
    takes: Callable[[Any], bool] = lambda _spec: True


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCatalogue:
    """The kernels of one backend: one operator a file.

    A file in a folder below is another kernel of the operator whose file has its name, written for
    one architecture in that one's own language, which no interpreter runs: ``hopper/gemm_dense``.

    Attributes:
        backend: first part of its components' names, e.g. ``nvidia``.
        dialect: TileLang dialect that the kernels are written in.
        architectures: what they must lower for, e.g. ``sm_90a``.
        folder: where the files are.
        load: from a kernel's name to its ``build``; imports the file.
        tune: from a kernel's name, a spec and the rows that a launch is planned for (0: whatever
            they are) to the tuning that is used.
        open: kernels compiled for the device of this machine; takes ``kernels.cache_dir``, below
            which they are kept; empty: the compiler's own folder is used.
        measured: JSON of what was measured on a device: kernel to date, hardware, commit and what
            the kernel was then.
        also: from a kernel's name and a spec to other tunings with which cases judge the kernel
            when it is interpreted.
        choices: from a kernel's name and a spec to the measured tunings that launch code chooses
            among; they are compiled, and judged on a device.
        limits: from a kernel's name to what its file says of it.
        arrange: from a kernel's name and the operator's arguments to the kernel's own, which may
            have weights in another layout.
        peer: from an operator's name and a spec to another implementation that is installed here
            and timed next to the kernel: its name, and a call on a case's arguments by name that
            may overwrite its outputs; None if there is none.
        judged: JSON of what a checker says of the kernels and was found to be in order, if it is.
        tunings: what there is to choose on the device of this machine, if anything is.
    """

    backend: str
    dialect: Literal["cuda", "ascend"]
    architectures: tuple[str, ...]
    folder: Path
    load: Callable[[str], Build]
    tune: Callable[[str, Any, int], Any]
    open: Callable[[str], Kernels]
    measured: Path
    also: Callable[[str, Any], tuple[Any, ...]] = lambda _kernel, _spec: ()
    choices: Callable[[str, Any], tuple[Any, ...]] = lambda _kernel, _spec: ()
    limits: Callable[[str], KernelLimits] = lambda _kernel: KernelLimits()
    arrange: Callable[[str, dict[str, torch.Tensor]], dict[str, torch.Tensor]] = (
        lambda _kernel, tensors: tensors
    )
    peer: Callable[[str, Any], tuple[str, Callable[[dict[str, torch.Tensor]], object]] | None] = (
        lambda _operator, _spec: None
    )
    judged: Path | None = None
    tunings: Callable[[], KernelTunings] | None = None

    @property
    def operators(self) -> tuple[str, ...]:
        """Names of the operators, sorted: files that are called family_operator."""
        names = (path.stem for path in self.folder.glob("*.py"))
        return tuple(sorted(name for name in names if name.startswith(_FAMILIES)))

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of all kernels, sorted: operators, and files of their names in folders below."""
        operators = self.operators
        files = [path.relative_to(self.folder) for path in self.folder.rglob("*.py")]
        names = [path.with_suffix("").as_posix() for path in files]
        return tuple(sorted(name for name in names if operator_of(name) in operators))

    def architectures_of(self, kernel: str) -> tuple[str, ...]:
        """What a kernel must lower for."""
        own = self.limits(kernel).architectures
        return self.architectures if own is None else own


def is_named(kernel: str, texts: str) -> bool:
    """Whether a name holds one of some texts, which commas separate; every name holds none."""
    return any(text in kernel for text in texts.split(","))


def operator_of(kernel: str) -> str:
    """The operator that a kernel computes."""
    return kernel.rpartition("/")[2]


def is_tile_kernel(kernel: str) -> bool:
    """Whether a kernel is written in the tile language alone, so that it can be interpreted."""
    return "/" not in kernel
