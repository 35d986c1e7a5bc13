"""Are index and shards compared completely before any data are read?"""

import json

import pytest
from deepinfer_core.errors import WeightsError
from deepinfer_core.weights.index import INDEX_NAME, SINGLE_NAME, open_shards

from tests.core.weights.conftest import SHARDS, rename_in_index

NAME = "layers.0.attn.wkv.weight"


def test_all_shards_are_opened_in_the_order_of_their_names(small_checkpoint):
    shards = open_shards(small_checkpoint)
    assert [shard.path.name for shard in shards] == [
        f"model-{number:05d}-of-{SHARDS:05d}.safetensors" for number in range(1, SHARDS + 1)
    ]


def test_one_file_needs_no_index(tmp_path, written):
    folder = written(lambda weights: weights[:4])
    [first, _] = open_shards(folder)
    (folder / INDEX_NAME).unlink()
    first.path.rename(folder / SINGLE_NAME)
    assert [shard.places.keys() for shard in open_shards(folder)] == [first.places.keys()]


def test_a_folder_without_weights_is_named(tmp_path):
    with pytest.raises(WeightsError, match=f"{tmp_path}, found neither"):
        open_shards(tmp_path)


def test_a_missing_shard_is_named_with_a_tensor_it_should_hold(damaged):
    (damaged / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"model-00002-of-00003.*2 of 3 shards; first tensor"):
        open_shards(damaged)


def test_a_truncated_shard_is_named(damaged):
    path = damaged / "model-00002-of-00003.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        WeightsError, match=r"in model-00002-of-00003.safetensors, found the file cut"
    ):
        open_shards(damaged)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xff", b'{"a": 1, "a": 2}'])
def test_an_unreadable_index_is_refused(damaged, content):
    (damaged / INDEX_NAME).write_bytes(content)
    with pytest.raises(WeightsError, match="no readable JSON"):
        open_shards(damaged)


@pytest.mark.parametrize("index", [[], {}, {"weight_map": {}}, {"weight_map": [1]}])
def test_an_index_without_a_weight_map_is_refused(damaged, index):
    (damaged / INDEX_NAME).write_text(json.dumps(index))
    with pytest.raises(WeightsError, match="weight_map"):
        open_shards(damaged)


@pytest.mark.parametrize("file", ["../other.safetensors", "/etc/passwd", "a/b", "", "..", 3, None])
def test_a_shard_outside_the_folder_is_refused(damaged, file):
    rename_in_index(damaged, lambda weights: weights.update({NAME: file}))
    with pytest.raises(WeightsError, match=f"the file of {NAME}"):
        open_shards(damaged)


def test_a_tensor_that_its_shard_does_not_hold_is_named(damaged):
    def move(weights: dict[str, str]) -> None:
        weights[NAME] = "model-00003-of-00003.safetensors"

    rename_in_index(damaged, move)
    with pytest.raises(WeightsError, match=f"found {NAME} as well"):
        open_shards(damaged)


def test_a_tensor_of_the_index_that_no_shard_holds_is_named(damaged):
    rename_in_index(
        damaged, lambda weights: weights.update({"x": "model-00001-of-00003.safetensors"})
    )
    with pytest.raises(WeightsError, match=r"asked for x in model-00001.*no such tensor"):
        open_shards(damaged)


def test_a_tensor_that_the_index_does_not_map_is_named(damaged):
    rename_in_index(damaged, lambda weights: weights.pop(NAME))
    with pytest.raises(WeightsError, match=f"found {NAME} as well"):
        open_shards(damaged)
