"""Which kernel, and which of its tunings, serves a spec on a device?

One pure function for all launch code. A kernel written for an architecture comes before the one in
the tile language where the device has that architecture and the kernel takes the spec; among
measured tunings the one that should take the least time is taken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

from deepinfer_core.interfaces.operators.catalogue import Build, is_tile_kernel, operator_of

from deepinfer_nvidia.kernels.catalogue import catalogue
from deepinfer_nvidia.kernels.product_times import fastest
from deepinfer_nvidia.kernels.tuning import KernelTuning
from deepinfer_nvidia.kernels.tuning.table import entries

__all__ = ["Choice", "Target", "choose"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a kernel is launched on.

    Attributes:
        is_hopper: whether kernels that are written for SM90 may be chosen.
        cores: streaming multiprocessors.
    """

    is_hopper: bool
    cores: int = 132


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A kernel and its tuning.

    Attributes:
        kernel: its name, ``FOLDER/OPERATOR`` for one that is written for an architecture.
        build: of its file.
        tuning: of the kernel.
    """

    kernel: str
    build: Build
    tuning: KernelTuning


@lru_cache(maxsize=4096)
def choose(operator: str, spec: Any, target: Target, rows: int = 0) -> Choice:
    """Choose.

    Args:
        operator: name of the operator, which is that of its kernel in the tile language.
        spec: of the operator.
        target: the device.
        rows: that a launch is planned for; 0 if that does not matter.
    """
    able = [kernel for kernel in _kernels_of(operator) if _takes(kernel, spec, target)]
    measured = [one for kernel in able for one in entries(kernel) if one.instead_of not in able]
    found = fastest(operator, measured, spec, rows=rows, cores=target.cores)
    if found is not None:
        return _choice(found.kernel, found.tuning, target)
    return _choice(able[0], catalogue().tune(able[0], spec, 0), target)


@cache
def _kernels_of(operator: str) -> tuple[str, ...]:
    """Its kernels, those for one architecture first."""
    found = [kernel for kernel in catalogue().kernels if operator_of(kernel) == operator]
    return tuple(sorted(found, key=is_tile_kernel))


def _takes(kernel: str, spec: Any, target: Target) -> bool:
    is_here = target.is_hopper or is_tile_kernel(kernel)
    return is_here and catalogue().limits(kernel).takes(spec)


def _choice(kernel: str, tuning: Any, target: Target) -> Choice:
    """With the cores of the device, for kernels whose blocks stay."""
    if hasattr(tuning, "cores"):
        tuning = replace(tuning, cores=target.cores)
    return Choice(kernel=kernel, build=catalogue().load(kernel), tuning=tuning)
