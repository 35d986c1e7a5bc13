"""Which kernel, and which of its tunings, serves a spec on a device?

One pure function for all launch code. A kernel written for an architecture comes before the one in
the tile language where the device has that architecture and the kernel takes the spec; among
measured tunings the one is taken that was the fastest for the spec and the number of rows, or that
should take the least time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

from deepinfer_core.interfaces.operators.catalogue import Build, is_tile_kernel, operator_of

from deepinfer_nvidia.kernels.catalogue import catalogue
from deepinfer_nvidia.kernels.product_times import fastest
from deepinfer_nvidia.kernels.tuning import KernelTuning
from deepinfer_nvidia.kernels.tuning.choices import choice_for
from deepinfer_nvidia.kernels.tuning.table import Measured, entries, shipped_table

__all__ = ["Choice", "Target", "choose", "measured_for"]


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
    if target.is_hopper:
        chosen = choice_for(shipped_table().choices.get((operator, spec), ()), max(rows, 1))
        if chosen is not None:
            return _choice(chosen.choice.kernel, chosen.choice.tuning, target)
    measured = measured_for(operator, spec, target)
    found = fastest(operator, measured, spec, rows=rows, cores=target.cores)
    if found is not None:
        return _choice(found.kernel, found.tuning, target)
    first = _able(operator, spec, target)[0]
    return _choice(first, catalogue().tune(first, spec, 0), target)


def measured_for(operator: str, spec: Any, target: Target) -> list[Measured]:
    """The rated tunings of all kernels that may serve a spec on a device; of any parts of K."""
    able = _able(operator, spec, target)
    return [one for kernel in able for one in entries(kernel) if one.instead_of not in able]


def _able(operator: str, spec: Any, target: Target) -> list[str]:
    return [kernel for kernel in _kernels_of(operator) if _takes(kernel, spec, target)]


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
