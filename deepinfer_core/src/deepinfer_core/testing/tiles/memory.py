"""How does an interpreted tile program keep its buffers, and how does it know what was written?

Memory is bytes; a view gives them a dtype, a shape and strides, so that two buffers over one
allocation (``T.view``, ``T.reshape``) share their contents. On-chip memory carries, cell by cell,
whether anything was stored there since the block began. Global memory belongs to the caller and
counts as written.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LaneMemory", "Memory", "View", "address", "all_bits", "row_major"]

Array = NDArray[Any]


class Memory:
    """One allocation that all lanes of a block share.

    Args:
        size_bytes: how many bytes the program asked for.
        granule_bytes: the width of the narrowest element that any view of it has.
        name: the buffer's name in the program, for messages.
    """

    __slots__ = ("complete", "granule_bytes", "name", "raw", "size_bytes", "written")

    def __init__(self, size_bytes: int, granule_bytes: int, name: str) -> None:
        padded = -(-size_bytes // 8) * 8
        self.raw: Array = np.zeros(padded, np.uint8)
        self.size_bytes = size_bytes
        self.granule_bytes = granule_bytes
        self.name = name
        self.written: Array | None = np.zeros(padded // granule_bytes, np.uint8)
        self.complete = False

    @classmethod
    def of_caller(cls, raw: Array, name: str) -> "Memory":
        """Global memory over the caller's bytes."""
        memory = cls.__new__(cls)
        memory.raw, memory.name, memory.granule_bytes = raw, name, 1
        memory.size_bytes = len(raw)
        memory.written, memory.complete = None, True
        return memory

    def forget(self) -> None:
        """Begin a new block: nothing is written."""
        if self.written is not None:
            self.written[:] = 0
            self.complete = False


def all_bits(count: int) -> int:
    """The unsigned integer of ``count`` bytes that are all one: every granule is written."""
    return int.from_bytes(b"\x01" * count, "little")


@dataclass(slots=True)
class View:
    """A buffer as one statement sees it: typed cells with strides, counted in elements."""

    name: str
    memory: Memory
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    flat: Array
    marks: Array | None
    """One unsigned integer an element: which of its granules are written."""
    full: int
    cells: int
    """How many elements the buffer has."""

    @classmethod
    def over(
        cls,
        memory: Memory,
        dtype: np.dtype[Any],
        shape: Sequence[int],
        strides: Sequence[int] | None = None,
        offset: int = 0,
    ) -> "View":
        """Lay a typed view over a memory; without strides it is row-major."""
        size = dtype.itemsize
        cells = len(memory.raw) // size
        flat = memory.raw[: cells * size].view(dtype)
        marks, full = None, 1
        if memory.written is not None:
            ratio = size // memory.granule_bytes
            marks, full = memory.written.view(f"u{ratio}"), all_bits(ratio)
        steps = tuple(strides) if strides is not None else row_major(shape)
        extents, count = tuple(shape), math.prod(shape)
        return cls(memory.name, memory, dtype, extents, steps, offset, flat, marks, full, count)

    def window(self, offset: int, shape: Sequence[int], strides: Sequence[int]) -> Array:
        """The cells at ``offset`` (elements, from the buffer's first cell) as a strided array."""
        return strided(self.flat, self.offset + offset, shape, strides)

    def written_window(self, offset: int, shape: Sequence[int], strides: Sequence[int]) -> Array:
        """The marks of the cells that ``window`` would give."""
        assert self.marks is not None
        return strided(self.marks, self.offset + offset, shape, strides)


def strided(flat: Array, offset: int, shape: Sequence[int], strides: Sequence[int]) -> Array:
    size = flat.itemsize
    steps = tuple(size * stride for stride in strides)
    if 0 in shape:
        return np.empty(shape, flat.dtype)
    return np.ndarray(tuple(shape), flat.dtype, flat.view(np.uint8), offset * size, steps)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides, in elements, of a dense array."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def address(view: View, cell: int) -> str:
    """The index of a flat cell, for a message."""
    return f"cell {cell} of {view.name!r} {list(view.shape)}"


class LaneMemory:
    """One allocation that every lane has for itself (``alloc_local``, ``alloc_var``).

    The last axis of ``raw`` is the bytes; the axes before it are lanes, and are only as many as
    the values stored so far needed. ``complete`` says that every lane surely wrote every cell.
    """

    __slots__ = ("complete", "granule_bytes", "initial", "name", "raw", "size_bytes", "written")

    def __init__(self, size_bytes: int, granule_bytes: int, name: str, *, zeroed: bool) -> None:
        self.size_bytes, self.granule_bytes = size_bytes, granule_bytes
        self.name, self.initial = name, zeroed
        self.forget()

    def forget(self) -> None:
        """Begin a new block: one value for all lanes, written only if variables start at zero."""
        self.raw: Array = np.zeros(self.size_bytes, np.uint8)
        granules = self.size_bytes // self.granule_bytes
        self.written: Array = np.full(granules, int(self.initial), np.uint8)
        self.complete = self.initial

    def widen(self, lanes: tuple[int, ...]) -> None:
        """Give every lane of a wider lane shape its own copy."""
        self.raw = np.broadcast_to(self.raw, (*lanes, self.size_bytes)).copy()
        self.written = np.broadcast_to(self.written, (*lanes, self.written.shape[-1])).copy()

    def share(self, threads: int, lanes: Array) -> "LaneMemory":
        """A copy for a group of threads; thread lanes are the last ones before the cells."""
        part = LaneMemory(self.size_bytes, self.granule_bytes, self.name, zeroed=self.initial)
        divided = self.raw.ndim > 1 and self.raw.shape[-2] == threads
        part.raw = self.raw[..., lanes, :] if divided else self.raw.copy()
        part.written = self.written[..., lanes, :] if divided else self.written.copy()
        part.complete = self.complete
        return part

    def take_back(self, threads: int, lanes: Array, part: "LaneMemory") -> None:
        """Put a group's copy back into its lanes, if the group changed it."""
        mine = self.share(threads, lanes)
        if np.array_equal(mine.raw, part.raw) and np.array_equal(mine.written, part.written):
            return
        if self.raw.ndim == 1 or self.raw.shape[-2] != threads:
            self.widen((threads,))
        self.raw[..., lanes, :] = part.raw
        self.written[..., lanes, :] = part.written
        self.complete = self.complete and part.complete

    def narrow(self, axes: int) -> None:
        """Drop the lanes beyond ``axes``: what they disagree on counts as unwritten."""
        extra = self.raw.ndim - 1 - axes
        if extra <= 0:
            return
        leading = tuple(range(extra))
        if 0 in self.raw.shape:
            self.raw = np.zeros((*self.raw.shape[extra:-1], self.size_bytes), np.uint8)
            self.written = np.zeros((*self.raw.shape[:-1], self.written.shape[-1]), np.uint8)
            self.complete = False
            return
        first = self.raw[(0,) * extra]
        same = (self.raw == first).all(axis=leading)
        same = same.reshape(*same.shape[:-1], -1, self.granule_bytes).all(axis=-1)
        self.written = (self.written.all(axis=leading) & same).astype(np.uint8)
        self.complete = bool(self.written.all())
        self.raw = first.copy()
