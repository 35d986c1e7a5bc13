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
from deepinfer_nvidia.kernels.tuning.choices import choice_for, parts_in
from deepinfer_nvidia.kernels.tuning.table import entries, shipped_table
from deepinfer_nvidia.probe import kernel_folder

if TYPE_CHECKING:
    import torch
    from deepinfer_core.interfaces.operators.tunings import KernelTunings

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
        tunings=_tunings,
    )


def _module(kernel: str) -> ModuleType:
    return import_module(f"{__package__}.{kernel.replace('/', '.')}")


def _load(kernel: str) -> Build:
    build: Build = _module(kernel).build
    return build


def _tune(kernel: str, spec: Any, rows: int = 0) -> Any:
    """What was measured to be fast, what the kernel's own file chooses, or the defaults."""
    if rows:
        choices = shipped_table().choices.get((operator_of(kernel), spec), ())
        chosen = choice_for(choices, rows)
        if chosen is not None and chosen.choice.kernel == kernel:
            return chosen.choice.tuning
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
    """Rated ones with which the spec is computed, and those chosen for any spec that fit it."""
    operator = operator_of(kernel)
    rated = [one.tuning for one in fitting(operator, entries(kernel), spec)]
    chosen = [
        one.choice.tuning
        for (name, _), choices in shipped_table().choices.items()
        for one in choices
        if name == operator and one.choice.kernel == kernel
    ]
    # The parts of K change bits, and are within the bounds of a case whatever they are.
    able = [one for one in chosen if parts_in(one) == 1 or spec.groups == 1]
    return tuple(dict.fromkeys((*rated, *able)))


def _tunings() -> KernelTunings:
    from deepinfer_nvidia.device.gpu import current_gpu
    from deepinfer_nvidia.kernels.choice import Target
    from deepinfer_nvidia.kernels.tuning.device_tunings import DeviceTunings

    gpu = current_gpu()
    return DeviceTunings(Target(is_hopper=gpu.is_hopper, cores=gpu.cores))


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
