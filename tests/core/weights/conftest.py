"""A small checkpoint in the true formats, and ways to damage it."""

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.weights.manifest import WeightSpec, manifest_of
from deepinfer_core.weights.random_checkpoint import make_random_checkpoint
from deepinfer_core.weights.random_values import random_pieces
from deepinfer_core.weights.shard import read_shard
from deepinfer_core.weights.sized_config import config_of_size
from deepinfer_core.weights.writing import write_checkpoint

SHARDS = 3


@pytest.fixture(scope="session")
def small_config() -> ModelConfig:
    """2.3 MB with every feature, FP8 and FP4 included."""
    return config_of_size(2_300_000)


@pytest.fixture(scope="session")
def small_checkpoint(tmp_path_factory: pytest.TempPathFactory, small_config: ModelConfig) -> Path:
    """The checkpoint; not to be changed."""
    folder = tmp_path_factory.mktemp("small") / "checkpoint"
    make_random_checkpoint(folder, small_config, shards=SHARDS)
    return folder


@pytest.fixture
def damaged(tmp_path: Path, small_checkpoint: Path) -> Path:
    """A copy of the checkpoint that a test may damage."""
    return Path(shutil.copytree(small_checkpoint, tmp_path / "damaged"))


@pytest.fixture
def written(tmp_path: Path, small_config: ModelConfig) -> Callable[..., Path]:
    """Writes random weights for a changed list of weights: given the list, returns the folder."""

    def write(change: Callable[[list[WeightSpec]], Iterable[WeightSpec]]) -> Path:
        folder = tmp_path / "written"
        folder.mkdir()
        weights = list(change(list(manifest_of(small_config).weights.values())))
        write_checkpoint(folder, small_config, weights, random_pieces(0), shards=2)
        return folder

    return write


def shard_of(folder: Path, name: str) -> Path:
    """The file that holds a tensor."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    return folder / index["weight_map"][name]


def edit_header(path: Path, old: bytes, new: bytes) -> None:
    """Replace text in a header without moving the data."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + length]
    assert old in header
    changed = header.replace(old, new, 1).rstrip(b" ")
    assert len(changed) <= length
    path.write_bytes(content[:8] + changed.ljust(length) + content[8 + length :])


def set_bytes(folder: Path, name: str, element_offset_bytes: int, value: bytes) -> None:
    """Overwrite data of a tensor."""
    path = shard_of(folder, name)
    place = read_shard(path).places[name]
    with path.open("r+b") as file:
        file.seek(place.offset_bytes + element_offset_bytes)
        file.write(value)


def rename_in_index(folder: Path, change: Callable[[dict[str, str]], None]) -> None:
    """Edit the weight map."""
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    change(index["weight_map"])
    path.write_text(json.dumps(index))
