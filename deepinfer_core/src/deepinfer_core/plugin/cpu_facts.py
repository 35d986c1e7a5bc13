"""Program: what is the CPU that this process may use? Prints one JSON object.

Limits of a container count: what the kernel would refuse is not there. Nothing is measured and
nothing heavy is imported.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from pathlib import Path

__all__ = ["cpu_facts", "usable_threads"]

_PROC = Path("/proc")
_CGROUP = Path("/sys/fs/cgroup")

# What decides which CPU kernels can run; the other flags of the kernel's long list do not.
_INSTRUCTION_SETS = frozenset(
    {"amx_bf16", "amx_int8", "amx_tile", "avx", "avx2", "avx512_bf16", "avx512_fp16"}
    | {"avx512_vnni", "avx512bw", "avx512dq", "avx512f", "avx512vl", "avx_vnni", "f16c", "fma"}
    | {"sse4_2", "asimd", "asimddp", "asimdhp", "bf16", "i8mm", "sve", "sve2", "svebf16"}
)


def cpu_facts() -> dict[str, object]:
    """Facts in the form of ``DeviceFacts``: cores, threads, memory in bytes, instruction sets."""
    threads = usable_threads()
    return {
        "device": "cpu",
        "model": _cpuinfo("model name") or platform.processor() or platform.machine(),
        "count": 1,
        "memory_bytes": _usable_memory_bytes(),
        "cores": min(_physical_cores() or threads, threads),
        "threads": threads,
        "instruction_sets": sorted(
            _INSTRUCTION_SETS & set((_cpuinfo("flags") or _cpuinfo("Features")).split())
        ),
        "machine": platform.machine(),
        "system": platform.system(),
    }


def usable_threads() -> int:
    """Hardware threads, cut by affinity and by the processor quota of a container."""
    if hasattr(os, "sched_getaffinity"):
        threads = len(os.sched_getaffinity(0))
    else:
        threads = os.cpu_count() or 1
    quota, _, period = _read(_CGROUP / "cpu.max").partition(" ")
    if quota.isdigit() and period.strip().isdigit() and int(period):
        # A quota of 1.5 processors lets two threads run, though not all the time.
        threads = min(threads, max(1, -(-int(quota) // int(period))))
    return threads


def _physical_cores() -> int:
    """Distinct (socket, core) pairs; 0 where the kernel does not list them."""
    pairs: set[tuple[str, str]] = set()
    socket = ""
    for name, value in _cpuinfo_lines():
        if name == "physical id":
            socket = value
        elif name == "core id":
            pairs.add((socket, value))
    return len(pairs)


def _usable_memory_bytes() -> int:
    """Physical memory, cut by the limit of a container; 0 if unknown."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 0
    limit = _read(_CGROUP / "memory.max")
    return min(total, int(limit)) if limit.isdigit() else total


def _cpuinfo(name: str) -> str:
    return next((value for key, value in _cpuinfo_lines() if key == name), "")


def _cpuinfo_lines() -> Iterator[tuple[str, str]]:
    for line in _read(_PROC / "cpuinfo").splitlines():
        name, _, value = line.partition(":")
        yield name.strip(), value.strip()


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


if __name__ == "__main__":
    print(json.dumps(cpu_facts()))  # noqa: T201 - this is the program's answer
