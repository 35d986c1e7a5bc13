"""Can blocks be kept in a shared folder here? Which folder it is, a probe is not told."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from deepinfer_core.plugin import ProbeContext, Verdict

__all__ = ["posix", "usrbio"]

_SCORE = -1
"""Below ``core.memory``: ``auto`` names no folder."""

_MODULE = "hf3fs_py_usrbio"
_MOUNTS = Path("/proc/self/mountinfo")
_KIND = "fuse.hf3fs"


def posix(context: ProbeContext) -> Verdict:
    """Any folder will do."""
    return Verdict(True, score=_SCORE, reason="segment files in a folder")


def usrbio(context: ProbeContext) -> Verdict:
    """The module, a mount, a ring: the first that is missing is told."""
    try:
        library = importlib.import_module(_MODULE)
    except ModuleNotFoundError as error:
        if error.name != _MODULE:
            return _missing(f"the module {_MODULE} needs {error.name}", f"install {error.name}")
        return _missing(
            f"needs the module {_MODULE}, found none",
            "build it from the sources of 3FS (pip install . there), or use threefs.posix",
        )
    except ImportError as error:
        return _missing(
            f"the module {_MODULE} cannot be loaded: {error}",
            "build it from the sources of 3FS that are mounted here, or use threefs.posix",
        )
    return rings_of(library, _mounts(_MOUNTS.read_text(encoding="utf-8", errors="replace")))


def rings_of(library: Any, mounts: list[str]) -> Verdict:
    """Whether a ring can be made on any of the mounts of 3FS."""
    if not mounts:
        return _missing(
            f"needs a mount of 3FS ({_KIND}), found none", "mount it, or use threefs.posix"
        )
    problems = []
    for mount in mounts:
        try:
            library.ioring(mount, 1)
        except OSError as error:
            problems.append(f"{mount}: {error.strerror or error}")
        else:
            return Verdict(True, score=_SCORE, reason=f"USRBIO on {mount}")
    return _missing(
        f"no ring can be made on {'; '.join(problems)}",
        "see that the client of 3FS runs, and that this user may write to 3fs-virt/iovs",
    )


def _mounts(mountinfo: str) -> list[str]:
    """Mounts of 3FS, of the lines of ``/proc/self/mountinfo``."""
    found = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        if right.split(" ")[0] == _KIND:
            # The kernel writes these four characters as octal numbers.
            path = left.split(" ")[4]
            for code, character in (("040", " "), ("011", "\t"), ("012", "\n"), ("134", "\\")):
                path = path.replace(f"\\{code}", character)
            found.append(path)
    return found


def _missing(reason: str, fix: str) -> Verdict:
    return Verdict(False, reason=reason, fix=fix)
