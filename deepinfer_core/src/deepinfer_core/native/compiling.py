"""Which compiler is there, and how does it make one library of all C sources?

Compiler and processor are part of a library's name, so that a shared home folder never hands one
machine's instructions to another.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from deepinfer_core.errors import DeviceError

__all__ = ["Compiler", "compile_library", "find_compiler", "library_name", "sources"]

COMPILERS = ("cc", "gcc", "clang")
"""Names tried in this order."""

FLAGS = (
    "-std=gnu11",
    "-O3",
    "-march=native",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fopenmp",
    "-fPIC",
    "-fvisibility=hidden",
    "-Wno-psabi",
)
"""Contraction is off so that no compiler decides where a product is rounded. Neither ``errno`` nor
floating-point traps are looked at; giving them up changes no result."""

_TIMEOUT_S = 300
_COMPLAINT = re.compile("error|cannot find|multiple definition", re.IGNORECASE)
_FOLDER = Path(__file__).parent / "kernels"
_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """A C compiler.

    Attributes:
        path: the program.
        version: first line of what it says about itself.
    """

    path: str
    version: str


def find_compiler() -> Compiler:
    """The first C compiler on the search path.

    Raises:
        DeviceError: there is none, or it does not run.
    """
    path = next(filter(None, map(shutil.which, COMPILERS)), None)
    if path is None:
        raise DeviceError(
            f"asked for a C compiler, found none of {', '.join(COMPILERS)}",
            hint="install a C compiler (gcc or clang) with OpenMP",
        )
    done = _run([path, "--version"])
    if done.returncode:
        raise DeviceError(
            f"asked {path} for its version, found that it ends with {done.returncode}",
            hint="repair the C compiler, or put another one first on the search path",
        )
    return Compiler(path=path, version=done.stdout.partition("\n")[0])


def sources() -> tuple[Path, ...]:
    """All files that make up the library, headers included, by name."""
    return tuple(sorted(file for file in _FOLDER.iterdir() if file.suffix in (".c", ".h", ".inc")))


def library_name(compiler: Compiler, files: tuple[Path, ...]) -> str:
    """A file name that changes with everything the library depends on."""
    digest = hashlib.sha256()
    for part in (compiler.path, compiler.version, *FLAGS, *_processor()):
        digest.update(part.encode() + b"\0")
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return f"deepinfer-kernels-{digest.hexdigest()[:24]}.so"


def compile_library(compiler: Compiler, files: tuple[Path, ...], target: Path) -> None:
    """Compile all sources at the same time, link them, and put the result in place.

    Raises:
        DeviceError: the folder cannot be written, or a source cannot be compiled.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="compile-") as folder:
            built = _build(compiler, files, Path(folder))
            with built.open("rb") as file:
                os.fsync(file.fileno())  # a name must not outlive a crash that its bytes do not
            os.replace(built, target)
    except OSError as error:
        raise DeviceError(
            f"asked for compiled kernels in {target.parent}, found that it cannot be written: "
            f"{error.strerror or error}",
            hint="make the folder writable, or choose another one with kernels.cache_dir",
        ) from error


def _build(compiler: Compiler, files: tuple[Path, ...], folder: Path) -> Path:
    units = [file for file in files if file.suffix == ".c"]
    # A compiler without a linker would say so only behind seconds of work, at every start.
    trial = [compiler.path, "-shared", "-x", "c", os.devnull, "-o", str(folder / "trial.so")]
    done = _run(trial)
    if done.returncode:
        raise _failed(compiler, "an empty library", done.stderr)

    def compile_one(unit: Path) -> str:
        built = str(folder / f"{unit.stem}.o")
        done = _run([compiler.path, *FLAGS, "-c", str(unit), "-o", built])
        if done.returncode:
            raise _failed(compiler, unit.name, done.stderr)
        return built

    with ThreadPoolExecutor(len(units)) as pool:
        objects = list(pool.map(compile_one, units))
    library = folder / "kernels.so"
    done = _run([compiler.path, *FLAGS, "-shared", *objects, "-o", str(library), "-lm"])
    if done.returncode:
        raise _failed(compiler, "the library", done.stderr)
    return library


def _failed(compiler: Compiler, what: str, output: str) -> DeviceError:
    lines = [line.strip() for line in output.splitlines() if _COMPLAINT.search(line)]
    first = "; ".join(lines[:2]) or output.strip()[:200] or "no message"
    return DeviceError(
        f"asked {compiler.path} to compile {what}, found: {first}",
        hint="install a C compiler (gcc 9 or clang 14 and newer) with OpenMP",
    )


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeviceError(
            f"asked {command[0]} to run, found that it does not: {error}",
            hint="repair the C compiler, or put another one first on the search path",
        ) from error


def _processor() -> tuple[str, ...]:
    """What ``-march=native`` looks at, as far as the system tells."""
    try:
        block = _CPUINFO.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
    except OSError:
        block = ""
    wanted = ("model name", "flags", "Features", "CPU part", "cpu family", "model", "stepping")
    lines = [line for line in block.splitlines() if line.partition(":")[0].strip() in wanted]
    return (platform.system(), platform.machine(), platform.processor(), *lines)
