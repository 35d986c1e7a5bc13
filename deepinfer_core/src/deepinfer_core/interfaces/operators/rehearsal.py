"""How does launch code run when it is only asked which kernels it would call?

Its tensors have shapes and no numbers, so it chooses by shapes, dtypes, strides and plans alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from deepinfer_core.interfaces.operators.catalogue import Kernels
from deepinfer_core.interfaces.operators.wanted import (
    Build,
    KernelCompiler,
    Rehearsal,
    WantedKernel,
)

if TYPE_CHECKING:
    import torch

__all__ = ["NotedKernels"]


class NotedKernels(Kernels):
    """Notes down calls and runs nothing.

    Args:
        rehearsal: has the list.
        compiler: would compile the kernels.
    """

    def __init__(self, rehearsal: Rehearsal, compiler: KernelCompiler) -> None:
        self._rehearsal = rehearsal
        self._compiler = compiler

    def call(self, build: Build, spec: Any, tuning: Any, /, **tensors: torch.Tensor) -> None:
        """Put the kernel on the list."""
        self._rehearsal.note(
            WantedKernel(compiler=self._compiler, build=build, spec=spec, tuning=tuning)
        )

    def prepared(self, build: Build, spec: Any, tuning: Any) -> Callable[..., None]:
        """Put it on the list once; its calls do nothing."""
        self.call(build, spec, tuning)
        return _run_nothing


def _run_nothing(**tensors: torch.Tensor) -> None:
    """Of a kernel that is on the list."""
