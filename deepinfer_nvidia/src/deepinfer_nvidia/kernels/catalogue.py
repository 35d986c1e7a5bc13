"""Which kernels does this distribution have, and how are they tuned and opened?"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from deepinfer_core.interfaces.operators.catalogue import Build, KernelCatalogue, Kernels

from deepinfer_nvidia.kernels.tuning import KernelTuning
from deepinfer_nvidia.probe import kernel_folder

__all__ = ["ARCHITECTURES", "catalogue"]

ARCHITECTURES = ("sm_90a", "sm_100a")
"""What every kernel must lower for; only the first has been run on."""

_HERE = Path(__file__).parent


def catalogue() -> KernelCatalogue:
    """All kernels of this folder."""
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
    )


def _load(operator: str) -> Build:
    build: Build = import_module(f"{__package__}.{operator}").build
    return build


def _tune(operator: str, spec: Any) -> Any:
    """What the kernel's own file chooses for a spec, or the defaults."""
    module = import_module(f"{__package__}.{operator}")
    if choose := getattr(module, "default_tuning", None):
        return choose(spec)
    return getattr(module, "Tuning", KernelTuning)()


def _also(operator: str, spec: Any) -> tuple[Any, ...]:
    """What the kernel's own file says that launch code chooses among."""
    choices = getattr(import_module(f"{__package__}.{operator}"), "launch_tunings", None)
    return choices(spec) if choices else ()


def _open(cache_dir: str) -> Kernels:
    from deepinfer_nvidia.device.gpu import current_gpu
    from deepinfer_nvidia.kernels.launch import CompiledKernels, TileLangCompiler

    return CompiledKernels(TileLangCompiler(current_gpu().arch, kernel_folder(cache_dir)))
