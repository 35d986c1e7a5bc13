"""What does the header of one safetensors file say, and can it be true?

A file is: eight bytes with the length of the header, little endian; the header, a JSON object from
tensor names to dtype, shape and the range of its bytes; then the data without gaps. The header is
written by others, so every number in it is checked against the size of the file before it is used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from deepinfer_core.errors import WeightsError
from deepinfer_core.model.config_reading import unique_keys
from deepinfer_core.weights.manifest import DTYPE_BYTES, StoredTensor

__all__ = ["Shard", "TensorPlace", "read_shard"]

_LENGTH_BYTES = 8
_LARGEST_HEADER_BYTES = 100 * 2**20  # the format's own limit
_HINT = "copy the file again from its source"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPlace:
    """Where the data of one tensor lie.

    Attributes:
        tensor: name as in the file, dtype and shape.
        path: the file.
        offset_bytes: from the start of the file.
    """

    tensor: StoredTensor
    path: Path
    offset_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One file whose header has been checked.

    Attributes:
        path: the file.
        size_bytes: of the whole file.
        header: the header's bytes, for fingerprints.
        places: by name as in the file, in the order of the data.
    """

    path: Path
    size_bytes: int
    header: bytes
    places: Mapping[str, TensorPlace]


def read_shard(path: Path) -> Shard:
    """Read and check a header; no data are read.

    Raises:
        WeightsError: no such file, not a safetensors file, or shorter or longer than it says.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            limit = min(_LARGEST_HEADER_BYTES, size - _LENGTH_BYTES)
            if not 2 <= length <= limit:
                raise _damaged(path, f"a header of {length} bytes in a file of {size} bytes")
            header = file.read(length)
    except OSError as error:
        raise WeightsError(
            f"asked for the shard {path}, found {error.strerror or error}",
            hint="complete the download of the checkpoint",
        ) from error
    start = _LENGTH_BYTES + length
    places = _places(path, _parse(path, header), start, size - start)
    return Shard(path=path, size_bytes=size, header=header, places=places)


def _parse(path: Path, header: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(header, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"a header that is not JSON ({error})") from error
    if not isinstance(parsed, dict):
        raise _damaged(path, "a header that is not a JSON object")
    parsed.pop("__metadata__", None)
    return parsed


def _places(
    path: Path, parsed: dict[str, Any], start: int, data_bytes: int
) -> dict[str, TensorPlace]:
    """Check that the tensors fill the data part exactly, one behind the other."""
    ranges = []
    for name, entry in parsed.items():
        tensor = _tensor(path, name, entry)
        begin, end = _offsets(path, name, entry)
        if end - begin != tensor.nbytes:
            raise _damaged(path, f"{end - begin} bytes for {_described(tensor)}", name)
        ranges.append((begin, end, tensor))
    places = {}
    expected = 0
    for begin, end, tensor in sorted(ranges, key=lambda item: item[:2]):
        if begin != expected:
            raise _damaged(path, f"data at offset {begin}, expected at {expected}", tensor.name)
        if end > data_bytes:
            raise WeightsError(
                f"asked for {tensor.name} in {path.name}, found the file cut off:"
                f" its data end at byte {start + end}, the file at {start + data_bytes}",
                hint=_HINT,
            )
        places[tensor.name] = TensorPlace(tensor=tensor, path=path, offset_bytes=start + begin)
        expected = end
    if expected != data_bytes:
        raise _damaged(path, f"{data_bytes - expected} bytes behind the last tensor")
    return places


def _tensor(path: Path, name: str, entry: Any) -> StoredTensor:
    if not isinstance(entry, dict):
        raise _damaged(path, "no dtype, shape and offsets", name)
    dtype, shape = entry.get("dtype"), entry.get("shape")
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise _damaged(path, f"the unknown dtype {dtype!r}", name)
    counts = _counts(shape)
    if counts is None or prod(counts) >= 2**63:
        raise _damaged(path, f"the shape {shape!r}", name)
    return StoredTensor(name=name, dtype=dtype, shape=counts)


def _offsets(path: Path, name: str, entry: dict[str, Any]) -> tuple[int, int]:
    offsets = _counts(entry.get("data_offsets"))
    if offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _damaged(path, f"the offsets {entry.get('data_offsets')!r}", name)
    return offsets[0], offsets[1]


def _counts(values: Any) -> tuple[int, ...] | None:
    if isinstance(values, list) and all(type(value) is int and value >= 0 for value in values):
        return tuple(values)
    return None


def _described(tensor: StoredTensor) -> str:
    return f"a tensor of dtype {tensor.dtype} and shape {list(tensor.shape)}"


def _damaged(path: Path, found: str, name: str | None = None) -> WeightsError:
    asked = f"{name} in {path.name}" if name else f"a safetensors file, {path.name}"
    return WeightsError(f"asked for {asked}, found {found}", hint=_HINT)
