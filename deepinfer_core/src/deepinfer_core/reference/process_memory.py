"""How much memory may this process use, and how much of it is free?

A container's limit counts where it is lower than the machine's memory. Control groups nest, so the
process's own group and all groups around it are asked. Pages of cached files count as free: the
kernel drops them before it refuses memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from deepinfer_core.interfaces.device import DeviceMemory

__all__ = ["process_memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """Files of a control group, and the field of ``memory.stat`` that counts droppable pages."""

    limit: str
    used: str
    cached: str


_UNIFIED = _Names(limit="memory.max", used="memory.current", cached="inactive_file")
_SEPARATE = _Names(
    limit="memory.limit_in_bytes", used="memory.usage_in_bytes", cached="total_inactive_file"
)


def process_memory(root: Path = Path("/")) -> DeviceMemory:
    """Read the memory now.

    Args:
        root: where ``proc`` and ``sys`` are found.
    """
    information = _fields(root / "proc/meminfo", ":")
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    total = information.get("MemTotal", 0) * 1024 or os.sysconf("SC_PHYS_PAGES") * page_bytes
    free = information.get("MemAvailable", total // 1024) * 1024
    for group, names in _control_groups(root):
        limit = _number(group / names.limit)
        if limit is None:
            continue
        cached = _fields(group / "memory.stat").get(names.cached, 0)
        used = (_number(group / names.used) or 0) - cached
        total = min(total, limit)
        free = min(free, max(limit - used, 0))
    return DeviceMemory(total_bytes=total, free_bytes=free)


def _control_groups(root: Path) -> Iterator[tuple[Path, _Names]]:
    """The process's group in each hierarchy and those around it, innermost first.

    A line of the kernel's list is ``number:controllers:path``; the unified hierarchy has number 0
    and no controllers.
    """
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, controllers_and_path = line.partition(":")
        controllers, _, path = controllers_and_path.partition(":")
        if controllers == "":
            mount, names = root / "sys/fs/cgroup", _UNIFIED
        elif "memory" in controllers.split(","):
            mount, names = root / "sys/fs/cgroup/memory", _SEPARATE
        else:
            continue
        group = mount / path.strip("/")
        for place in (group, *group.parents):
            if place.is_relative_to(mount):
                yield place, names


def _fields(file: Path, end: str = "") -> dict[str, int]:
    """Lines of a name and a number."""
    found = {}
    for line in _text(file).splitlines():
        words = line.split()
        if len(words) >= 2 and words[1].isdigit():
            found[words[0].removesuffix(end)] = int(words[1])
    return found


def _number(file: Path) -> int | None:
    text = _text(file).strip()
    return int(text) if text.isdigit() else None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
