"""On which inputs must a kernel of any backend equal its twin in ``core.reference``?

Files hold the cases of a family of operators, or of a part of one; each has ``cases()``. The same
cases are interpreted on a CPU, run on mutated kernels (which must fail), and run compiled on a
device.
"""

from __future__ import annotations

import functools
import pkgutil
from importlib import import_module

from deepinfer_core.testing.kernel_cases.case import KernelCase, complaints, poisoned

__all__ = ["KernelCase", "all_cases", "cases_of", "complaints", "poisoned"]


@functools.cache
def all_cases() -> tuple[KernelCase, ...]:
    """Every case of every operator, in the order of files."""
    names = [module.name for module in pkgutil.iter_modules(__path__) if module.name != "case"]
    modules = [import_module(f"{__name__}.{name}") for name in sorted(names)]
    return tuple(case for module in modules if hasattr(module, "cases") for case in module.cases())


def cases_of(operator: str) -> tuple[KernelCase, ...]:
    """The cases of one operator; empty if it has none."""
    return tuple(case for case in all_cases() if case.operator == operator)
