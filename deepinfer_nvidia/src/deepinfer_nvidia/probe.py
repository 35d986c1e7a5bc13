"""Can the components of this distribution run here? Names the first thing that is missing.

Everything is read from the facts and from the metadata of what is installed; no device is touched
and nothing heavy is imported. What the user of this very machine can supply is ``mendable``.
"""

from __future__ import annotations

from pathlib import Path

import importlib_metadata
from deepinfer_core.plugin import DeviceFacts, ProbeContext, Verdict

__all__ = [
    "CAPABILITY",
    "DEEP_GEMM",
    "SCORE",
    "TILELANG",
    "TILE_KERNELS",
    "WRAPPER_SCORE",
    "cuda",
    "deep_gemm",
    "kernel_folder",
    "tile_kernels",
    "tilelang",
]

CAPABILITY = (9, 0)
"""Lowest that the kernels are written for."""

TILELANG = "0.1.15"
"""The release whose generated code was tested; another one changes code and bugs."""

TILE_KERNELS = ("2.1.0",)
"""Releases of tile_kernels whose calls are known; they have kept the contract on an H200."""

DEEP_GEMM = ("2.6.1",)
"""Releases of DeepGEMM whose calls are known; they have kept the contract on an H200."""

SCORE = 50
"""Of the kernels of this distribution."""

WRAPPER_SCORE = 40
"""Of other people's libraries: ``auto`` takes them for nothing that kernels of ours serve."""

_WRAPPED_GENERATIONS = {9: "9.x", 10: "10.x"}
"""Devices that the wrapped libraries have kernels for; only the first has been run on."""


def cuda(context: ProbeContext) -> Verdict:
    """Whether the device itself can be used: a GPU, a driver, and torch built for it."""
    refusal = _device_problem(context.device)
    return refusal or Verdict(True, score=SCORE, reason=_title(context.device))


def tilelang(context: ProbeContext) -> Verdict:
    """Whether kernels in TileLang can run: a device, the compiler's release, and nvcc or a cache.

    The Ascend port of TileLang ships under the same import name, so the owner is checked too.
    """
    refusal = (
        _device_problem(context.device)
        or _numerics_problem(context)
        or _compiler_problem(context)
        or _nvcc_problem(context)
    )
    return refusal or Verdict(True, score=SCORE, reason=f"kernels for {_arch(context.device)}")


def tile_kernels(context: ProbeContext) -> Verdict:
    """Whether the library tile_kernels can compute, and TileLang what it does not."""
    # Its declared dependencies name a later torch, and Python 3.12, than it was seen to need.
    fix = f"pip install --no-deps tile_kernels=={TILE_KERNELS[-1]}"
    return _wrapped(context, "tile_kernels", TILE_KERNELS, fix, "norm, rotation, streams")


def deep_gemm(context: ProbeContext) -> Verdict:
    """Whether the library DeepGEMM can multiply, and TileLang what it does not."""
    # What package indices have under the name is an early release without bf16 products.
    fix = f"build deep_gemm {DEEP_GEMM[-1]} from github.com/deepseek-ai/DeepGEMM"
    return _wrapped(context, "deep_gemm", DEEP_GEMM, fix, "products of bf16")


def kernel_folder(cache_dir: str) -> Path | None:
    """Where compiled kernels are kept; None if the configuration names no folder.

    Args:
        cache_dir: of the contexts of probes and factories.
    """
    return Path(cache_dir) / "nvidia" if cache_dir else None


def _wrapped(
    context: ProbeContext, library: str, known: tuple[str, ...], fix: str, work: str
) -> Verdict:
    """A library that compiles its own kernels and leaves the rest to ``nvidia.tilelang``."""
    others = tilelang(context)
    if not others.usable:
        return others
    found = context.versions.get(library.replace("_", "-"))
    if found is None:
        return _missing(f"{library} is not installed", fix)
    release = found.partition("+")[0]
    if release not in known:
        return _missing(f"needs {library} {' or '.join(known)}, found {found}", fix)
    facts = context.device
    if facts.capability[0] not in _WRAPPED_GENERATIONS:
        wanted, capability = " and ".join(_WRAPPED_GENERATIONS.values()), facts.capability
        return Verdict(
            False,
            reason=f"{library} has kernels for capability {wanted}, found"
            f" {'.'.join(map(str, capability))} ({facts.model})",
            fix="use nvidia.tilelang",
        )
    if not facts.extra.get("nvcc"):
        return _missing(
            f"{library} compiles its kernels when they are called, and there is no nvcc",
            "install the CUDA toolkit and put nvcc on the search path, or use nvidia.tilelang",
        )
    return Verdict(True, score=WRAPPER_SCORE, reason=f"{work} by {library} {release}")


def _device_problem(facts: DeviceFacts) -> Verdict | None:
    if facts.problem:
        return Verdict(False, reason=facts.problem, fix=facts.fix)
    if facts.extra.get("is_absent"):
        return None  # kernels are compiled for it; nothing runs
    if not facts.count:
        return Verdict(False, reason="no NVIDIA device", fix="start it where a GPU is")
    built = str(facts.extra.get("torch_cuda", ""))
    if not built:
        return _missing(
            "torch is a build without CUDA", "install a CUDA build of torch for this driver"
        )
    runs = str(facts.extra.get("driver_cuda", ""))
    if runs and _major(built) > _major(runs):
        return _missing(
            f"torch is built for CUDA {built}, the driver runs CUDA {runs}",
            "update the driver, or install a build of torch for the driver's CUDA",
        )
    if facts.capability < CAPABILITY:
        wanted, found = (".".join(map(str, pair)) for pair in (CAPABILITY, facts.capability))
        return Verdict(
            False,
            reason=f"needs capability {wanted}, found {found or 'none'} ({facts.model})",
            fix="use a Hopper or Blackwell GPU",
        )
    return None


def _numerics_problem(context: ProbeContext) -> Verdict | None:
    if context.needs.compute == "bfloat16":
        return None
    return Verdict(
        False,
        reason=f"computes in bfloat16; the model asks for {context.needs.compute}",
        fix="core.reference computes in it, on this device too if it is named",
    )


def _compiler_problem(context: ProbeContext) -> Verdict | None:
    found = context.versions.get("tilelang")
    fix = f"pip install tilelang=={TILELANG}"
    if found is None:
        return _missing("tilelang is not installed", fix)
    others = [owner for owner in _owners() if owner != "tilelang"]
    if others:
        return _missing(
            f"the import name tilelang also belongs to {', '.join(sorted(others))}",
            f"uninstall that and run {fix} --force-reinstall",
        )
    if found.partition("+")[0] != TILELANG:
        return _missing(f"needs tilelang {TILELANG}, found {found}", fix)
    return None


def _nvcc_problem(context: ProbeContext) -> Verdict | None:
    if context.device.extra.get("nvcc"):
        return None
    folder = kernel_folder(context.cache_dir)
    if folder is not None and folder.is_dir() and any(folder.iterdir()):
        return None
    return _missing(
        f"no nvcc, and no compiled kernels in {folder or 'a cache folder'}",
        "install the CUDA toolkit and put nvcc on the search path, or bring compiled kernels",
    )


def _owners() -> list[str]:
    """Installed distributions that claim the import name, normalised."""
    claims = importlib_metadata.packages_distributions().get("tilelang", [])
    return [name.lower().replace("_", "-") for name in claims]


def _missing(reason: str, fix: str) -> Verdict:
    return Verdict(False, reason=reason, fix=fix, mendable=True)


def _major(version: str) -> int:
    return int(version.partition(".")[0])


def _title(facts: DeviceFacts) -> str:
    return facts.model or "an NVIDIA device"


def _arch(facts: DeviceFacts) -> str:
    """Architecture that kernels are compiled for; ``a``: its own instructions, no later device."""
    return "sm_{}{}a".format(*facts.capability[:2])
