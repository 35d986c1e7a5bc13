"""Can the components of this distribution run here? Names the first thing that is missing.

Everything is read from the facts and from the metadata of what is installed; no device is touched
and nothing heavy is imported. What the user of this very machine can supply is ``mendable``.
"""

from __future__ import annotations

from pathlib import Path

import importlib_metadata
from deepinfer_core.plugin import DeviceFacts, ProbeContext, Verdict

__all__ = ["CAPABILITY", "SCORE", "TILELANG", "cuda", "kernel_folder", "tilelang"]

CAPABILITY = (9, 0)
"""Lowest that the kernels are written for."""

TILELANG = "0.1.15"
"""The release whose generated code was tested; another one changes code and bugs."""

SCORE = 50
"""Above wrappers that know one generation of devices only when these say less."""


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


def kernel_folder(cache_dir: str) -> Path | None:
    """Where compiled kernels are kept; None if the configuration names no folder.

    Args:
        cache_dir: of the contexts of probes and factories.
    """
    return Path(cache_dir) / "nvidia" if cache_dir else None


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
