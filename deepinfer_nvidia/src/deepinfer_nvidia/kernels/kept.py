"""Which kernels does a folder have, and are they what was put there?

TileLang writes an entry in one piece, notes its sizes and hashes, and finds it by a key of the
kernel's whole text; to know the key, the kernel must be built. So a label lies beside the entries
for each kernel that was kept: it is found by operator, spec and tuning alone, and holds the hash of
the library. An entry whose library has another hash was damaged or put there by somebody else.

Labels are written in one piece too. They say which sources they are of, so that a kernel which was
changed is looked at again.
"""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any

import importlib_metadata
from deepinfer_core.interfaces.operators.catalogue import Build
from deepinfer_core.telemetry.logs import get_logger
from deepinfer_core.whole_files import replace_file

__all__ = ["KeptKernels"]

log = get_logger(__name__)

_LIBRARY = "executable.so"
"""The file of an entry that is loaded and launched."""

_ENTRIES = "kernels"
"""The folder that entries stand in, wherever the compiler puts it."""

_LABELS = "labels"

_SOURCES = ("deepinfer_core.interfaces.operators", "deepinfer_nvidia.kernels")
"""Packages that decide what a kernel of some spec and tuning is."""


class KeptKernels:
    """The kernels in one folder.

    Args:
        folder: may not exist yet.
        arch: what they are compiled for.
    """

    def __init__(self, folder: Path, arch: str) -> None:
        self._folder = folder
        self._arch = arch

    def has(self, build: Build, spec: Any, tuning: Any) -> bool:
        """Whether a kernel is there, whole, and of the sources of now."""
        label = self._label(build, spec, tuning)
        if label is None or label["sources"] != _sources():
            return False
        return _hash(self._folder / label["entry"] / _LIBRARY) == label["library"]

    def check(self, build: Build, spec: Any, tuning: Any) -> None:
        """Take away an entry that is not what its label says, before it is loaded."""
        label = self._label(build, spec, tuning)
        if label is None:
            return
        entry = self._folder / label["entry"]
        if entry.is_dir() and _hash(entry / _LIBRARY) != label["library"]:
            log.warning(
                "kernels.entry_refused",
                operator=_operator(build),
                entry=str(entry),
                reason=f"{_LIBRARY} is not the file that was kept",
            )
            shutil.rmtree(entry, ignore_errors=True)

    def note(self, build: Build, spec: Any, tuning: Any, entry: Path) -> bool:
        """Label a kernel that was compiled or loaded.

        Args:
            build: the kernel's, with its spec and tuning.
            spec: see ``build``.
            tuning: see ``build``.
            entry: where the compiler keeps it.

        Returns:
            Whether it is in the folder.
        """
        library = _hash(entry / _LIBRARY)
        if not library or not entry.is_relative_to(self._folder):
            return False
        label = {
            "operator": _operator(build),
            "arch": self._arch,
            "spec": repr(spec),
            "tuning": repr(tuning),
            "sources": _sources(),
            "entry": entry.relative_to(self._folder).as_posix(),
            "library": library,
        }
        if label != self._label(build, spec, tuning):
            file = self._path(build, spec, tuning)
            file.parent.mkdir(parents=True, exist_ok=True)
            replace_file(file, json.dumps(label, indent=1))
        return True

    def _label(self, build: Build, spec: Any, tuning: Any) -> dict[str, str] | None:
        """The label of a kernel; None if there is none that can be read."""
        try:
            read = json.loads(self._path(build, spec, tuning).read_text(encoding="utf-8"))
            label = {name: str(read[name]) for name in _FIELDS}
        except (OSError, ValueError, KeyError, TypeError):
            return None
        # What is written in a file must not lead out of the folder: the entry may be removed.
        entry = PurePosixPath(label["entry"])
        is_inside = not entry.is_absolute() and ".." not in entry.parts
        return label if is_inside and entry.parent.name == _ENTRIES else None

    def _path(self, build: Build, spec: Any, tuning: Any) -> Path:
        words = (self._arch, build.__module__, repr(spec), repr(tuning))
        name = hashlib.sha256("\n".join(words).encode()).hexdigest()
        return self._folder / _LABELS / f"{name}.json"


_FIELDS = ("operator", "arch", "spec", "tuning", "sources", "entry", "library")


def _operator(build: Build) -> str:
    return build.__module__.rpartition(".")[2]


def _hash(file: Path) -> str:
    """Of a file's bytes; empty if it cannot be read."""
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError:
        return ""


@functools.cache
def _sources() -> str:
    """Hash of the compiler's release and of all files that kernels are made of."""
    digest = hashlib.sha256(importlib_metadata.version("tilelang").encode())
    for package in _SOURCES:
        folder = Path(str(files(package)))
        for file in sorted(folder.rglob("*")):
            if file.suffix in (".py", ".cuh"):
                digest.update(file.relative_to(folder).as_posix().encode())
                digest.update(file.read_bytes())
    return digest.hexdigest()
