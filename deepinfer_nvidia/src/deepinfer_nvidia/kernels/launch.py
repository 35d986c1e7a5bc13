"""How does launch code get from a kernel's file to a running kernel?

``CompiledKernels`` compiles for a device. The tile interpreter of ``deepinfer_core.testing.tiles``
brings another ``Kernels``, which runs the same launch code on a CPU.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepinfer_core.interfaces.operators.catalogue import Build, Kernels

if TYPE_CHECKING:
    import torch

    from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["CompiledKernels"]


class CompiledKernels(Kernels):
    """Compiles each kernel when it is first called, and keeps it.

    TileLang keeps compiled kernels on disk too, keyed by their source and its own release.

    Args:
        arch: ``sm_90a`` or ``sm_100a``.
        folder: where it keeps them; None leaves that to TileLang.

    Attributes:
        compiled: kernels built so far, in order; those after the warm-up were late.
    """

    def __init__(self, arch: str, folder: Path | None = None) -> None:
        self.compiled: list[str] = []
        self._arch = arch
        self._folder = folder
        self._kernels: dict[tuple[Build, Any, KernelTuning], tuple[Any, tuple[str, ...]]] = {}

    @property
    def built(self) -> int:
        """Kernels that were compiled or loaded so far."""
        return len(self.compiled)

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
        import tilelang

        if self._folder is not None:
            # One setting of the process, read at each compilation: engines may have their own.
            tilelang.env.TILELANG_CACHE_DIR = str(self._folder)
        function = build(spec, tuning)
        kernel = tilelang.compile(
            function,
            target={"kind": "cuda", "arch": self._arch},
            pass_configs=dict(tuning.pass_configs),
        )
        self.compiled.append(build.__module__.rpartition(".")[2])
        names = tuple(function.buffer_map[handle].name for handle in function.params)
        return kernel, names
