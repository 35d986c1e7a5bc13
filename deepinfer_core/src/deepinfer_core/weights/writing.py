"""How is a checkpoint written, without ever holding more than a piece of it?

Shapes and formats are known before any data, so headers come first and the data of each tensor
follow as a stream of pieces. A weight and its scales stay in one file. The index is written last
but one and ``config.json`` last: a folder that was cut off in the middle does not look like a
checkpoint.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deepinfer_core.errors import ConfigError, WeightsError
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.weights.index import INDEX_NAME
from deepinfer_core.weights.manifest import StoredTensor, WeightSpec
from deepinfer_core.weights.progress import LoadProgress, ProgressListener

__all__ = ["Pieces", "prepare_folder", "write_checkpoint"]

Pieces = Callable[[WeightSpec, StoredTensor], Iterator[NDArray[np.uint8]]]
"""The data of one stored tensor as bytes, in order."""


def prepare_folder(folder: Path, needed_bytes: int) -> None:
    """Create a folder to write to.

    Raises:
        ConfigError: it exists and is not empty, cannot be created, or its disk is too full.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_empty = not any(folder.iterdir())
    except OSError as error:
        raise ConfigError(
            f"asked to write a checkpoint to {folder}, found {error.strerror or error}",
            hint="name a folder that can be created",
        ) from error
    if not is_empty:
        raise ConfigError(
            f"asked to write a checkpoint to {folder}, found files in it",
            hint="name a new or an empty folder; nothing is overwritten",
        )
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise ConfigError(
            f"asked to write {needed_bytes} bytes to {folder}, found {free} bytes free",
            hint="free some space, or ask for a smaller checkpoint",
        )


def write_checkpoint(
    folder: Path,
    config: ModelConfig,
    weights: Sequence[WeightSpec],
    pieces: Pieces,
    *,
    shards: int = 1,
    progress: ProgressListener | None = None,
) -> None:
    """Write shards, index and configuration.

    Args:
        folder: exists and is empty; see ``prepare_folder``.
        config: written as ``config.json``.
        weights: in the order of the files; each is written in its own format.
        pieces: gives the data.
        shards: number of files; their sizes are as equal as whole weights allow.
        progress: told after each stored tensor.

    Raises:
        ConfigError: fewer than one shard, or more than weights.
        WeightsError: the disk is full or a file cannot be written.
    """
    if not 1 <= shards <= len(weights):
        raise ConfigError(
            f"asked for {shards} shards, found {len(weights)} weights",
            hint=f"ask for 1 to {len(weights)} shards",
        )
    total = sum(item.nbytes for weight in weights for item in weight.stored())
    done = 0
    weight_map: dict[str, str] = {}
    try:
        for number, part in enumerate(_split(weights, shards, total), start=1):
            name = f"model-{number:05d}-of-{shards:05d}.safetensors"
            for stored in _write_shard(folder / name, part, pieces):
                weight_map[stored.name] = name
                done += stored.nbytes
                if progress is not None:
                    progress(_event(stored.name, done, total))
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (folder / INDEX_NAME).write_text(json.dumps(index, indent=1), encoding="utf-8")
        text = json.dumps(config.to_dict(), indent=2)
        (folder / "config.json").write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise WeightsError(
            f"asked to write a checkpoint to {folder}, found {error.strerror or error}",
            hint="remove the folder and try again where there is space",
        ) from error


def _split(
    weights: Sequence[WeightSpec], shards: int, total_bytes: int
) -> Iterator[list[WeightSpec]]:
    """Cut the sequence where the running size passes each even share."""
    part: list[WeightSpec] = []
    done, number = 0, 1
    for position, weight in enumerate(weights):
        part.append(weight)
        done += sum(item.nbytes for item in weight.stored())
        left = len(weights) - position - 1
        is_full = done * shards >= total_bytes * number
        # Every later shard needs a weight of its own.
        if number < shards and (is_full or left == shards - number):
            yield part
            part, number = [], number + 1
    yield part


def _write_shard(
    path: Path, weights: Sequence[WeightSpec], pieces: Pieces
) -> Iterator[StoredTensor]:
    pairs = [(weight, item) for weight in weights for item in weight.stored()]
    with path.open("xb") as file:
        file.write(_header(item for _, item in pairs))
        for weight, item in pairs:
            written = sum(file.write(piece.data) for piece in pieces(weight, item))
            if written != item.nbytes:
                raise WeightsError(
                    f"asked for {item.nbytes} bytes of {item.name}, found {written}",
                    hint="the values given do not have the manifest's shape",
                )
            yield item


def _header(tensors: Iterable[StoredTensor]) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for item in tensors:
        end = offset + item.nbytes
        entries[item.name] = {
            "dtype": item.dtype,
            "shape": list(item.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _event(name: str, done: int, total: int) -> LoadProgress:
    return LoadProgress(phase="write", bytes_done=done, bytes_total=total, name=name)
