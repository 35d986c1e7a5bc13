"""How do bytes get from a file into a tensor, and when are they refused?

Plain positioned reads straight into the tensor's own memory: no second copy, no page faults, and no
pages of the file that would count as the process's memory. Only tables of which a step looks up a
few rows are mapped instead. Every value is looked at once, while it is in the processor's cache.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from deepinfer_core.errors import WeightsError
from deepinfer_core.weights.shard import TensorPlace

__all__ = ["STORAGE", "Advanced", "map_tensor", "read_into", "read_tensor", "scan"]

Advanced = Callable[[int], None]
"""Called with the bytes of each piece read."""

STORAGE: dict[str, torch.dtype] = {
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E8M0": torch.uint8,
    "I8": torch.uint8,
    "U8": torch.uint8,
}
"""Dtype in memory: scales and packed codes are plain bytes."""

_PIECE_BYTES = 4 * 2**20  # one read and one check; small enough to stay in the processor's cache


def read_tensor(
    place: TensorPlace, *, rows: range | None = None, advanced: Advanced | None = None
) -> torch.Tensor:
    """Read a tensor, or consecutive rows of it, into new memory.

    Args:
        place: where it lies.
        rows: rows of dimension 0, step 1; None for all.
        advanced: told about each piece.

    Raises:
        WeightsError: as in ``read_into``.
    """
    shape = place.tensor.shape if rows is None else (len(rows), *place.tensor.shape[1:])
    out = torch.empty(shape, dtype=STORAGE[place.tensor.dtype])
    read_into(place, out, first_row=rows.start if rows else 0, advanced=advanced)
    return out


def read_into(
    place: TensorPlace,
    out: torch.Tensor,
    *,
    first_row: int = 0,
    advanced: Advanced | None = None,
) -> None:
    """Read into memory that the caller owns, and refuse NaN and infinite values.

    Args:
        place: where the tensor lies.
        out: contiguous, of the tensor's dtype in ``STORAGE``; as many rows as are wanted.
        first_row: row of the tensor to start with.
        advanced: told about each piece.

    Raises:
        WeightsError: the file ends early or cannot be read, or a value is NaN (in scales: byte
            255) or infinite.
    """
    flat = out.view(-1).view(torch.uint8) if out.numel() else out.new_empty(0, dtype=torch.uint8)
    row_bytes = place.tensor.nbytes // max(1, place.tensor.shape[0]) if first_row else 0
    with _opened(place) as descriptor:
        for start in range(0, flat.numel(), _PIECE_BYTES):
            piece = flat[start : start + _PIECE_BYTES]
            _read_piece(descriptor, piece, place, first_row * row_bytes + start, advanced)


def scan(place: TensorPlace, *, advanced: Advanced | None = None) -> None:
    """Read a tensor of any size through a small buffer, refuse NaN and infinite values.

    Raises:
        WeightsError: as in ``read_into``.
    """
    buffer = torch.empty(min(_PIECE_BYTES, place.tensor.nbytes), dtype=torch.uint8)
    with _opened(place) as descriptor:
        for start in range(0, place.tensor.nbytes, _PIECE_BYTES):
            piece = buffer[: place.tensor.nbytes - start]
            _read_piece(descriptor, piece, place, start, advanced)


def map_tensor(place: TensorPlace, *, advanced: Advanced | None = None) -> torch.Tensor:
    """Map a tensor after looking at all of it; the pages belong to the file until they are used.

    The file must not change while the tensor lives. Writes into the tensor stay in this process.

    Raises:
        WeightsError: as in ``read_into``.
    """
    scan(place, advanced=advanced)
    try:
        mapped = np.memmap(
            place.path,
            dtype=np.uint8,
            mode="c",
            offset=place.offset_bytes,
            shape=(place.tensor.nbytes,),
        )
    except (OSError, ValueError) as error:
        raise _unreadable(place, str(error)) from error
    stored = torch.from_numpy(mapped).view(STORAGE[place.tensor.dtype])
    return stored.view(place.tensor.shape)


@contextmanager
def _opened(place: TensorPlace) -> Iterator[int]:
    try:
        descriptor = os.open(place.path, os.O_RDONLY)
    except OSError as error:
        raise _unreadable(place, error.strerror or str(error)) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read_piece(
    descriptor: int, piece: torch.Tensor, place: TensorPlace, start: int, advanced: Advanced | None
) -> None:
    """Read and check the bytes of a tensor from ``start`` on."""
    _fill(descriptor, piece.numpy().data, place.offset_bytes + start, place)
    _refuse_damage(piece, place, start)
    if advanced is not None:
        advanced(piece.numel())


def _fill(descriptor: int, piece: memoryview, offset: int, place: TensorPlace) -> None:
    done = 0
    while done < len(piece):
        try:
            count = os.preadv(descriptor, [piece[done:]], offset + done)
        except OSError as error:
            raise _unreadable(place, error.strerror or str(error)) from error
        if count == 0:
            raise _unreadable(place, f"the end of the file at byte {offset + done}")
        done += count


def _refuse_damage(piece: torch.Tensor, place: TensorPlace, offset_bytes: int) -> None:
    """Check one piece of raw bytes for what no weight can be.

    The extremes decide in one pass and without any temporary tensor: the largest and the smallest
    float are NaN if one element is, and infinite ones are extremes themselves; as bytes, 255 is the
    NaN of ue8m0 and the negative one of e4m3, whose positive one is 127 as a signed byte. Packed
    four-bit codes have no NaN, and e4m3 has no infinity.
    """
    dtype = place.tensor.dtype
    label = place.tensor.name.endswith(".scale")
    found, step = "", 1
    if dtype in {"F32", "BF16"}:
        values = piece.view(STORAGE[dtype])
        lowest, highest = map(float, values.aminmax())
        step = values.itemsize
        if math.isnan(highest):
            found = "NaN"
        elif math.isinf(lowest) or math.isinf(highest):
            found = "an infinite value"
    elif dtype == "F8_E4M3":
        is_nan = int(piece.amax()) == 255 or int(piece.view(torch.int8).amax()) == 127
        found = "NaN" if is_nan else ""
    elif dtype == "F8_E8M0" or label:
        found = "NaN" if int(piece.amax()) == 255 else ""
    if found:
        raise WeightsError(
            f"asked for numbers in {place.tensor.name}, found {found} in {place.path.name}"
            f" among the elements from {offset_bytes // step} on",
            hint="the checkpoint is damaged; copy it again or export it anew",
        )


def _unreadable(place: TensorPlace, found: str) -> WeightsError:
    return WeightsError(
        f"asked for the data of {place.tensor.name} in {place.path}, found {found}",
        hint="copy the file again from its source",
    )
