"""On what, when and with which program was a figure measured?"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from deepinfer_core import __version__
from deepinfer_core.plugin.context import DeviceFacts
from deepinfer_core.plugin.resolved import Resolved

__all__ = ["Stamp", "commit_of", "computing", "hardware_of", "stamp_of"]

_RESULTS_APART = ":(top,exclude)benchmarks/results"
"""What earlier figures say is no part of the program that measures the next ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What every figure of one run carries.

    Attributes:
        hardware: device, its units and the threads in use.
        date: of the run, ISO 8601, UTC.
        commit: short name of the program's commit, with ``+`` if its work tree had changes other
            than recorded figures; the version where the program does not lie in a checkout of its
            own.
    """

    hardware: str
    date: str
    commit: str


def stamp_of(facts: DeviceFacts, threads: int) -> Stamp:
    """The stamp of a run that begins now.

    Args:
        facts: of the device.
        threads: of one operator on the CPU.
    """
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    hardware = f"{hardware_of(facts)}, {_counted(threads, 'thread')}"
    return Stamp(hardware=hardware, date=date, commit=commit_of(Path(__file__)))


def computing(resolved: Resolved) -> str:
    """Names of all picks but the device's, whose name says nothing about kernels."""
    names = {pick.spec.name for pick in resolved.picks if pick.kind != "device"}
    return "+".join(sorted(names))


def hardware_of(facts: DeviceFacts) -> str:
    """Name of a device and how much of it this process may use."""
    count = f"{facts.count} x " if facts.count > 1 else ""
    cores = f", {_counted(facts.cores, 'core')}" if facts.cores else ""
    return f"{count}{facts.model or facts.device}{cores}"


def commit_of(file: Path) -> str:
    """The commit that a source file belongs to.

    A copy that is installed inside somebody's checkout is not part of that checkout: only a
    tracked file counts.

    Args:
        file: an existing one.
    """
    folder, name = str(file.parent), file.name
    try:
        _git(folder, "ls-files", "--error-unmatch", name)
        head = _git(folder, "rev-parse", "--short", "HEAD").strip()
        changed = _git(folder, "status", "--porcelain", "--", ":/", _RESULTS_APART).strip()
    except (OSError, subprocess.CalledProcessError):
        return f"version {__version__}"
    return head + ("+" if changed else "")


def _git(folder: str, *arguments: str) -> str:
    command = ["git", "-C", folder, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
