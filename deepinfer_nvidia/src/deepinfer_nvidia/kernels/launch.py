"""How does launch code get from a kernel's file to a running kernel?

``Kernels`` is what launch code asks. ``CompiledKernels`` compiles for a device; the tile interpreter
of ``deepinfer_core.testing.tiles`` brings a second one, which runs the same launch code on a CPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from deepinfer_nvidia.kernels.tuning import KernelTuning

if TYPE_CHECKING:
    import torch

__all__ = ["Build", "CompiledKernels", "Kernels"]

Build = Callable[[Any, Any], Any]
"""``build`` of a kernel's file: from spec and tuning to a TileLang PrimFunc; pure."""


class Kernels(ABC):
    """Runs kernels, whatever that takes."""

    @abstractmethod
    def call(
        self, build: Build, spec: Any, tuning: KernelTuning, /, **tensors: torch.Tensor
    ) -> None:
        """Run one kernel on the current stream.

        Args:
            build: of the kernel's file.
            spec: the operator's spec; hashable.
            tuning: hashable.
            tensors: all arguments of the PrimFunc by name; outputs are overwritten.
        """


class CompiledKernels(Kernels):
    """Compiles each kernel when it is first called, and keeps it.

    TileLang keeps compiled kernels on disk too, keyed by their source.

    Args:
        arch: ``sm_90a`` or ``sm_100a``.

    Attributes:
        compiled: kernels built so far, in order; those after the warm-up were late.
    """

    def __init__(self, arch: str) -> None:
        self.compiled: list[str] = []
        self._arch = arch
        self._kernels: dict[tuple[Build, Any, KernelTuning], tuple[Any, tuple[str, ...]]] = {}

    def call(
        self, build: Build, spec: Any, tuning: KernelTuning, /, **tensors: torch.Tensor
    ) -> None:
        """Launch; the first call of a kernel compiles it."""
        found = self._kernels.get((build, spec, tuning))
        if found is None:
            found = self._kernels[build, spec, tuning] = self._compile(build, spec, tuning)
        kernel, names = found
        kernel(*[tensors[name] for name in names])

    def _compile(
        self, build: Build, spec: Any, tuning: KernelTuning
    ) -> tuple[Any, tuple[str, ...]]:
        import tilelang  # noqa: PLC0415 - seconds to import; not needed to plan

        function = build(spec, tuning)
        kernel = tilelang.compile(
            function,
            target={"kind": "cuda", "arch": self._arch},
            pass_configs=dict(tuning.pass_configs),
        )
        self.compiled.append(build.__module__.rpartition(".")[2])
        names = tuple(function.buffer_map[handle].name for handle in function.params)
        return kernel, names
