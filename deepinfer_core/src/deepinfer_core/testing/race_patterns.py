"""Which ways to wait for another thread does racecheck understand?

Each way is a small kernel in ``race_patterns.cu`` that hands numbers over through shared memory
and counts those that did not arrive. All but ``nobody_waits`` are ordered: by the memory model of
PTX, what a thread wrote before it met others is before what these do next, over any number of
meetings.
What racecheck reports of an ordered way, it would report of every kernel that waits like that.

``python -m deepinfer_core.testing.race_patterns`` prints what it says on this machine.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from deepinfer_core.testing.sanitizer import find_sanitizer, findings, run_checked

__all__ = ["WAYS", "Heard", "heard_of", "main"]

WAYS = {
    "all_meet": "all threads of a block meet at __syncthreads",
    "all_meet_by_name": "all threads of a block meet at named barriers",
    "some_met_before": "two warps meet at a barrier of their own, then all at __syncthreads",
    "some_met_before_by_name": "the same, then all at named barriers",
    "every_lane_arrives": "every thread that wrote arrives at an mbarrier",
    "first_lane_arrives": "a warp meets at __syncwarp, and its first lane arrives at an mbarrier",
    "every_lane_frees_a_copy": "every thread that read arrives, then the copy engine writes",
    "first_lane_frees_a_copy": "a warp that read meets, and its first lane arrives for all",
    "nobody_waits": "a race",
}
"""What a kernel does, by its name."""

Heard = Literal["silent", "reported", "wrong", "not run"]
"""What racecheck said of a way; or that numbers did not arrive; or that it could not be tried."""

_TRY_S = 40.0
_COMPILE_S = 120.0


def heard_of(sanitizer: str, names: Iterable[str] = tuple(WAYS)) -> dict[str, Heard]:
    """What racecheck says of each way.

    Args:
        sanitizer: path of compute-sanitizer.
        names: of ``WAYS``.
    """
    wanted = list(dict.fromkeys(names))
    with tempfile.TemporaryDirectory() as folder:
        program = _program(Path(folder)) if wanted else None
        if program is None:
            return dict.fromkeys(wanted, "not run")
        return {name: _heard(sanitizer, program, name) for name in wanted}


def _program(folder: Path) -> Path | None:
    """The kernels, compiled for the device of this machine; None if that does not work."""
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if nvcc is None:
        return None
    program, source = folder / "patterns", Path(__file__).with_suffix(".cu")
    command = (nvcc, "-std=c++17", "-O3", "-lineinfo", "-arch=native", str(source), "-o")
    done = subprocess.run(
        (*command, str(program)), capture_output=True, timeout=_COMPILE_S, check=False
    )
    return program if done.returncode == 0 else None


def _heard(sanitizer: str, program: Path, name: str) -> Heard:
    code, words = run_checked(sanitizer, "racecheck", (str(program), name), limit_s=_TRY_S)
    if f"{name}: " not in words or code is None:
        return "not run"
    if f"{name}: 0 wrong" not in words:
        return "wrong"
    return "reported" if findings(words) else "silent"


def main() -> int:
    """Print what racecheck says of every way.

    Returns:
        Exit code: 0; 2 if there is no compute-sanitizer.
    """
    sanitizer = find_sanitizer()
    if sanitizer is None:
        sys.stdout.write("there is no compute-sanitizer on this machine\n")
        return 2
    for name, heard in heard_of(sanitizer).items():
        sys.stdout.write(f"{heard:<9} {name}: {WAYS[name]}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
