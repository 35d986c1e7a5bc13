"""On which inputs must a kernel of any backend equal its twin in ``core.reference``?

One file a family of operators; each has ``cases()``. The same cases are interpreted on a CPU, run
on mutated kernels (which must fail), and run compiled on a device.
"""

from deepinfer_core.testing.kernel_cases.case import KernelCase, complaints, poisoned

__all__ = ["KernelCase", "complaints", "poisoned"]
