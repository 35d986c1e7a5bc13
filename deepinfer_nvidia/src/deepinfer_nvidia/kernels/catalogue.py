"""Which kernels does this distribution have, and how are they tuned and opened?"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from deepinfer_core.interfaces.operators.catalogue import (
    Build,
    KernelCatalogue,
    KernelLimits,
    Kernels,
    operator_of,
)

from deepinfer_nvidia.kernels.peers import peer
from deepinfer_nvidia.kernels.product_times import fastest, fitting
from deepinfer_nvidia.kernels.tuning import KernelTuning
from deepinfer_nvidia.kernels.tuning.table import entries
from deepinfer_nvidia.probe import kernel_folder

if TYPE_CHECKING:
    import torch

__all__ = ["ARCHITECTURES", "catalogue"]

ARCHITECTURES = ("sm_90a", "sm_100a")
"""What every kernel must lower for; only the first has been run on."""

_HERE = Path(__file__).parent
_NO_LIMITS = KernelLimits()
_CORES = 132
"""Of the device that tunings were measured on."""


def catalogue() -> KernelCatalogue:
    """All kernels of this folder and of those below."""
    return KernelCatalogue(
        backend="nvidia",
        dialect="cuda",
        architectures=ARCHITECTURES,
        folder=_HERE,
        load=_load,
        tune=_tune,
        open=_open,
        measured=_HERE / "measured.json",
        also=_also,
        limits=_limits,
        arrange=_arrange,
        choices=_choices,
        peer=peer,
        judged=_HERE / "judged_races.json",
    )


def _module(kernel: str) -> ModuleType:
    return import_module(f"{__package__}.{kernel.replace('/', '.')}")


def _load(kernel: str) -> Build:
    build: Build = _module(kernel).build
    return build


def _tune(kernel: str, spec: Any, rows: int = 0) -> Any:
    """What was measured to be fast, what the kernel's own file chooses, or the defaults."""
    if rows:
        measured = entries(kernel)
        found = fastest(operator_of(kernel), measured, spec, rows=rows, cores=_CORES)
        if found is not None:
            return found.tuning
    module = _module(kernel)
    if choose := getattr(module, "default_tuning", None):
        return choose(spec)
    return getattr(module, "Tuning", KernelTuning)()


def _also(kernel: str, spec: Any) -> tuple[Any, ...]:
    """What the kernel's own file says that launch code chooses among."""
    choices = getattr(_module(kernel), "launch_tunings", None)
    return choices(spec) if choices else ()


def _choices(kernel: str, spec: Any) -> tuple[KernelTuning, ...]:
    measured = fitting(operator_of(kernel), entries(kernel), spec)
    return tuple(one.tuning for one in measured)


def _limits(kernel: str) -> KernelLimits:
    limits: KernelLimits = getattr(_module(kernel), "LIMITS", _NO_LIMITS)
    return limits


def _arrange(kernel: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The arguments as the kernel's own file wants them."""
    arranged = getattr(_module(kernel), "arranged", None)
    return arranged(tensors) if arranged else tensors


def _open(cache_dir: str) -> Kernels:
    from deepinfer_nvidia.device.gpu import current_gpu
    from deepinfer_nvidia.kernels.launch import CompiledKernels

    return CompiledKernels(current_gpu().arch, kernel_folder(cache_dir))
