"""How do components run on interpreted kernels?

``InterpretedKernels`` has the calling convention of compiled kernels: a builder, its spec and
tuning, tensors by name. The program of each is built and translated once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deepinfer_core.interfaces.operators.catalogue import Build, Kernels
from deepinfer_core.testing.tiles.program import Program

if TYPE_CHECKING:
    import torch

__all__ = ["InterpretedKernels"]


class InterpretedKernels(Kernels):
    """Runs kernels on CPU tensors through the interpreter.

    Args:
        refuse_doubled_stores: as ``Program.run`` does.

    Attributes:
        programs: the translated programs by (builder, spec, tuning).
        calls: how many kernels ran.
    """

    def __init__(self, *, refuse_doubled_stores: bool = False) -> None:
        self.refuse_doubled_stores = refuse_doubled_stores
        self.programs: dict[tuple[Build, Any, Any], Program] = {}
        self.calls = 0

    def call(self, build: Build, spec: Any, tuning: Any, /, **tensors: torch.Tensor) -> None:
        """Run ``build(spec, tuning)`` on tensors; outputs are written in place.

        Args:
            build: a pure function from a hashable spec and tuning to a PrimFunc.
            spec: what to build.
            tuning: the backend's choices.
            tensors: one for each parameter, by the parameter's name.

        Raises:
            TileFault: the kernel used something unknown, or did something that it must not do.
        """
        key = (build, spec, tuning)
        program = self.programs.get(key)
        if program is None:
            program = self.programs[key] = Program(build(spec, tuning))
        self.calls += 1
        program.run(tensors, refuse_doubled_stores=self.refuse_doubled_stores)
