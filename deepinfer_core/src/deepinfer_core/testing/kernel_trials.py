"""On which cases, and with which tunings, is each kernel of a backend tried?

Every case of its operator that it takes, with the tuning of that case. A tuning that launch code
may choose and no small case has by itself is tried on the first case that it fits, so that what
large cases have is checked on a small one too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from deepinfer_core.interfaces.operators.catalogue import operator_of
from deepinfer_core.testing.kernel_cases import KernelCase, cases_of, complaints

if TYPE_CHECKING:
    from deepinfer_core.interfaces.operators.catalogue import KernelCatalogue, Kernels

__all__ = ["KernelTrial", "trials"]

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTrial:
    """One kernel with one tuning on one case.

    Attributes:
        kernel: its name in the catalogue.
        case: of its operator.
        tuning: of the kernel.
        catalogue: of the backend.
        is_usual: whether the tuning is that of the case.
    """

    kernel: str
    case: KernelCase
    tuning: Any
    catalogue: KernelCatalogue = field(repr=False, compare=False)
    is_usual: bool = True

    @property
    def id(self) -> str:
        """Kernel and case, and the tuning where it is not that of the case."""
        name = f"{self.kernel}[{self.case.name}]"
        return name if self.is_usual else f"{name} {self.tuning}"

    @property
    def pass_configs(self) -> dict[str, Any]:
        """The compiler's switches."""
        return dict(getattr(self.tuning, "pass_configs", ()))

    def function(self) -> Any:
        """The PrimFunc."""
        return self.catalogue.load(self.kernel)(self.case.spec, self.tuning)

    def arranged(self, given: Tensors) -> Tensors:
        """The kernel's own arguments, in memory of their own.

        Args:
            given: the operator's, on any device.
        """
        own = self.catalogue.arrange(self.kernel, given)
        return {name: tensor.clone() for name, tensor in own.items()}

    def call(self, kernels: Kernels, own: Tensors) -> None:
        """Run the kernel on its own arguments."""
        kernels.call(self.catalogue.load(self.kernel), self.case.spec, self.tuning, **own)

    def complaints(self, kernels: Kernels, given: Tensors, place: str = "cpu") -> list[str]:
        """What is wrong with the kernel; an empty list if nothing is.

        Args:
            kernels: run it.
            given: arguments of the case, anywhere; its layout is arranged there.
            place: torch name of the device that the kernel runs on. The twin of a small case
                computes on the CPU, that of a large one there too.
        """
        near = "cpu" if self.case.small else place
        expected = self.case.expect({name: x.clone().to(near) for name, x in given.items()})
        before = self.arranged(given)
        results = {name: x.clone().to(place) for name, x in before.items()}
        self.call(kernels, results)
        parts = [
            {name: tensor.cpu() for name, tensor in part.items()}
            for part in (given | before, expected, results)
        ]
        return complaints(self.case, *parts)


def trials(catalogue: KernelCatalogue, kernel: str) -> Iterator[KernelTrial]:
    """Everything that a kernel is tried with, cases in their order.

    Args:
        catalogue: of the backend.
        kernel: its name in there.
    """
    takes = catalogue.limits(kernel).takes
    cases = [case for case in cases_of(operator_of(kernel)) if takes(case.spec)]
    usual = {id(case): catalogue.tune(kernel, case.spec, case.rows) for case in cases}
    seen = {usual[id(case)] for case in cases if case.small}
    for case in cases:
        yield KernelTrial(kernel=kernel, case=case, tuning=usual[id(case)], catalogue=catalogue)
        for tuning in catalogue.choices(kernel, case.spec):
            if tuning not in seen:
                seen.add(tuning)
                yield KernelTrial(
                    kernel=kernel, case=case, tuning=tuning, catalogue=catalogue, is_usual=False
                )
