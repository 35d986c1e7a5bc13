"""How do components run on interpreted kernels?

``InterpretedKernels`` has the calling convention of compiled kernels: a builder, its spec, tensors
by name. The program of each (builder, spec) is built and translated once.
"""

from collections.abc import Callable
from typing import Any

from deepinfer_core.testing.tiles.program import Program

__all__ = ["InterpretedKernels"]


class InterpretedKernels:
    """Runs kernels on CPU tensors through the interpreter.

    Attributes:
        programs: the translated programs by (builder, spec).
        calls: how many kernels ran.
    """

    def __init__(self) -> None:
        self.programs: dict[tuple[Any, Any], Program] = {}
        self.calls = 0

    def call(self, build: Callable[[Any], Any], spec: Any, /, **tensors: Any) -> None:
        """Run ``build(spec)`` on tensors; outputs are written in place.

        Args:
            build: a pure function from a hashable spec to a PrimFunc.
            spec: what to build.
            tensors: one for each parameter, by the parameter's name.

        Raises:
            TileFault: the kernel used something unknown, or did something that it must not do.
        """
        key = (build, spec)
        program = self.programs.get(key)
        if program is None:
            program = self.programs[key] = Program(build(spec))
        self.calls += 1
        program.run(tensors)
