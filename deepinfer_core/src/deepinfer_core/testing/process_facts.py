"""What does a process hold of the machine, as its folder of ``/proc`` says?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

__all__ = ["is_running", "open_descriptors", "shared_segments"]


def is_running(process_id: int) -> bool:
    """Whether a process exists and is no zombie that its new parent has not noticed yet."""
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def open_descriptors() -> Counter[str]:
    """What this process has open, by kind."""

    def targets() -> Iterator[str]:
        for one in Path("/proc/self/fd").iterdir():
            try:
                yield one.readlink().name.partition(":")[0]
            except FileNotFoundError:  # that of the listing
                continue

    return Counter(targets())


def shared_segments(process_id: int) -> int:
    """Mappings of memory for blocks that a process shares with others."""
    return Path(f"/proc/{process_id}/maps").read_text().count("memfd:deepinfer-blocks")
