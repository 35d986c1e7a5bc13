"""Which files make up a checkpoint, and do they hold what its index says?

A folder holds either ``model.safetensors.index.json``, whose ``weight_map`` names the file of each
tensor, or one ``model.safetensors``. Only headers are read here.
"""

from __future__ import annotations

import json
from pathlib import Path

from deepinfer_core.errors import WeightsError
from deepinfer_core.model.config_reading import unique_keys
from deepinfer_core.weights.shard import Shard, read_shard

__all__ = ["INDEX_NAME", "SINGLE_NAME", "open_shards"]

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"


def open_shards(folder: Path) -> tuple[Shard, ...]:
    """Read the headers of all files of a checkpoint, sorted by file name.

    Raises:
        WeightsError: the index is missing or damaged, a file is missing or damaged, or a file does
            not hold exactly the tensors that the index maps to it.
    """
    if not (folder / INDEX_NAME).exists():
        if (folder / SINGLE_NAME).exists():
            return (read_shard(folder / SINGLE_NAME),)
        raise WeightsError(
            f"asked for a checkpoint in {folder}, found neither {INDEX_NAME} nor {SINGLE_NAME}",
            hint="name the folder that holds config.json and the safetensors files",
        )
    mapped: dict[str, set[str]] = {}
    for name, file in _weight_map(folder / INDEX_NAME).items():
        mapped.setdefault(file, set()).add(name)
    _check_presence(folder, mapped)
    shards = tuple(read_shard(folder / file) for file in sorted(mapped))
    for shard in shards:
        _check_contents(shard, mapped[shard.path.name])
    return shards


def _weight_map(path: Path) -> dict[str, str]:
    try:
        index = json.loads(path.read_bytes(), object_pairs_hook=unique_keys)
    except (OSError, ValueError, RecursionError) as error:
        raise WeightsError(
            f"asked for the index {path}, found no readable JSON: {error}",
            hint="copy the file again from its source",
        ) from error
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise WeightsError(f"asked for a weight_map in {path}, found none")
    for name, file in weight_map.items():
        if not isinstance(file, str) or Path(file).name != file or file in {"", ".", ".."}:
            raise WeightsError(
                f"asked for the file of {name} in {path.name}, found {file!r}",
                hint="shards lie beside their index",
            )
    return weight_map


def _check_presence(folder: Path, mapped: dict[str, set[str]]) -> None:
    missing = sorted(file for file in mapped if not (folder / file).is_file())
    if missing:
        raise WeightsError(
            f"asked for the shard {missing[0]} in {folder}, found {len(mapped) - len(missing)} of"
            f" {len(mapped)} shards; first tensor concerned: {min(mapped[missing[0]])}",
            hint="complete the download of the checkpoint",
        )


def _check_contents(shard: Shard, names: set[str]) -> None:
    file = shard.path.name
    lacking = sorted(names - shard.places.keys())
    if lacking:
        raise WeightsError(
            f"asked for {lacking[0]} in {file}, where {INDEX_NAME} maps it, found no such tensor",
            hint="index and shards belong to different copies",
        )
    surplus = sorted(shard.places.keys() - names)
    if surplus:
        raise WeightsError(
            f"asked for the tensors that {INDEX_NAME} maps to {file}, found {surplus[0]} as well",
            hint="index and shards belong to different copies",
        )
