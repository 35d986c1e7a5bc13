"""How do two processes share memory that ends with them?

The segment has no name: it lives as long as a process has it open, however those end. Whoever makes
it hands its descriptor on to a child. What order things happen in they tell each other by messages.
"""

from __future__ import annotations

import mmap
import os
import tempfile

from deepinfer_core.stores.fetcher.layout import GENERATION_BYTES, SegmentLayout

__all__ = ["Segment", "new_descriptor"]


def new_descriptor(size_bytes: int) -> int:
    """Memory of a size, as a descriptor that is closed by whoever asked for it.

    Raises:
        OSError: the system has none.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("deepinfer-blocks", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        os.ftruncate(descriptor, size_bytes)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


class Segment:
    """A segment as one process sees it.

    Args:
        descriptor: stays the caller's.
        layout: what lies where.
    """

    def __init__(self, descriptor: int, layout: SegmentLayout) -> None:
        self.layout = layout
        self._memory = memoryview(mmap.mmap(descriptor, layout.size_bytes))
        slots = sum(one.arriving + one.departing for one in layout.groups.values())
        self._generations = self._memory[: slots * GENERATION_BYTES].cast("Q")

    def view(self, group: str, number: int) -> memoryview:
        """The bytes of a slot, writable."""
        return self._memory[self.layout.groups[group].place(number)]

    def generation(self, group: str, number: int) -> int:
        """How often a slot had been given out before."""
        return self._generations[self.layout.groups[group].first + number]

    def renew(self, group: str, number: int) -> int:
        """Give a slot out once more; its generation from now on. One side does so for a slot."""
        place = self.layout.groups[group].first + number
        self._generations[place] += 1
        return self._generations[place]
