"""Has a random checkpoint the size, shards, formats and magnitudes that were asked for?"""

import json
import shutil
from types import SimpleNamespace

import pytest
import torch
from deepinfer_core.errors import ConfigError
from deepinfer_core.model.engram_vocabulary import load_compressed_vocabulary
from deepinfer_core.weights.checkpoint import open_checkpoint
from deepinfer_core.weights.fingerprint import fingerprint
from deepinfer_core.weights.manifest import manifest_of
from deepinfer_core.weights.random_checkpoint import make_random_checkpoint
from deepinfer_core.weights.sized_config import config_of_size


def data_of(folder):
    checkpoint = open_checkpoint(folder)
    return {name: checkpoint.tensor(name) for name in checkpoint.manifest.stored}


def same(left, right):
    return left.keys() == right.keys() and all(
        torch.equal(left[name].view(torch.uint8), right[name].view(torch.uint8)) for name in left
    )


@pytest.mark.parametrize("size", [2_300_000, 3_000_000, 16_000_000, 300_000_000, 2 * 2**30, 10**12])
def test_a_size_is_met_to_one_percent_from_below(size):
    assert 0.99 * size <= manifest_of(config_of_size(size)).nbytes <= size


@pytest.mark.parametrize("size", [-1, 0, 1, 2_000_000, 10**15])
def test_a_size_below_the_smallest_model_or_beyond_all_measure_is_refused(size):
    with pytest.raises(ConfigError, match=f"checkpoint of {size} bytes"):
        config_of_size(size)


def test_a_configuration_of_a_size_has_every_feature():
    layers = config_of_size(2_300_000).layers
    for part in ("has_compressor", "has_compressor_gate", "has_indexer", "has_engram", "uses_pool"):
        assert any(getattr(layer, part) for layer in layers)
    assert any(layer.is_drafter for layer in layers)


@pytest.mark.parametrize("shards", [1, 2, 7])
def test_shards_are_of_similar_size_and_hold_the_same_data(
    tmp_path, small_checkpoint, small_config, shards
):
    make_random_checkpoint(tmp_path / "x", small_config, shards=shards)
    sizes = [path.stat().st_size for path in (tmp_path / "x").glob("*.safetensors")]
    assert len(sizes) == shards
    largest = max(weight.nbytes for weight in open_checkpoint(tmp_path / "x").found.values())
    # A cut is at most one weight off its place; headers are below 64 KiB here.
    assert max(sizes) - min(sizes) <= 2 * largest + 2**16
    assert same(data_of(tmp_path / "x"), data_of(small_checkpoint))


def test_as_many_shards_as_weights_are_possible(tmp_path, small_config):
    count = len(manifest_of(small_config).weights)
    make_random_checkpoint(tmp_path / "x", small_config, shards=count)
    assert len(open_checkpoint(tmp_path / "x").shards) == count


@pytest.mark.parametrize("shards", [-1, 0, 10_000])
def test_other_numbers_of_shards_are_refused(tmp_path, small_config, shards):
    with pytest.raises(ConfigError, match=f"asked for {shards} shards"):
        make_random_checkpoint(tmp_path / "x", small_config, shards=shards)


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(tmp_path, small_config):
    folders = []
    for number, seed in enumerate((5, 5, 6)):
        folders.append(tmp_path / str(number))
        make_random_checkpoint(folders[-1], small_config, seed=seed)
    prints = [fingerprint(path, open_checkpoint(path).shards, full=True) for path in folders]
    assert prints[0] == prints[1] != prints[2]


def test_a_negative_seed_is_refused(tmp_path, small_config):
    with pytest.raises(ConfigError, match="seed -1"):
        make_random_checkpoint(tmp_path / "x", small_config, seed=-1)


def test_nothing_is_overwritten(tmp_path, small_config):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="found files in it"):
        make_random_checkpoint(tmp_path, small_config)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path, small_config):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="asked to write a checkpoint to"):
        make_random_checkpoint(tmp_path / "file" / "x", small_config)


def test_more_than_the_disk_holds_is_refused_before_writing(tmp_path, small_config, monkeypatch):
    needed = manifest_of(small_config).nbytes
    usage = SimpleNamespace(total=needed, used=1, free=needed - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(
        ConfigError, match=f"asked to write {needed} bytes .* {needed - 1} bytes free"
    ):
        make_random_checkpoint(tmp_path / "x", small_config)
    assert list((tmp_path / "x").iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        "layers.0.attn.wq_b.weight",  # FP8, 8,192 values
        "layers.2.attn.compressor.wkv.weight",  # bf16, 4,096 values
        "layers.3.ffn.experts.0.w1.weight",  # FP4, 4,096 values
        "head.weight",
    ],
)
def test_matrices_have_the_variance_of_an_untrained_layer(small_checkpoint, name):
    values = open_checkpoint(small_checkpoint).quant(name).dequantise()
    ratio = float(values.square().mean()) * values.shape[-1]
    # The scales of FP8 blocks are one of two neighbouring powers: with 8 or more of them the mean
    # square varies by a standard deviation of at most 0.75 / sqrt(16) = 0.19; elsewhere by less.
    assert ratio == pytest.approx(1, abs=0.6)


def test_norms_are_near_one(small_checkpoint):
    values = open_checkpoint(small_checkpoint).quant("norm.weight").dequantise()
    assert values.mean() == pytest.approx(1, abs=5 * 0.1 / 8)  # 64 values of deviation 0.1
    assert values.min() > 0


def test_the_toy_tokenizer_folds_to_the_configured_vocabulary(small_checkpoint, small_config):
    size = small_config.text_config.engram_compressed_vocab_size
    vocabulary = load_compressed_vocabulary(small_checkpoint / "tokenizer.json", expected_size=size)
    assert vocabulary.id_V.shape[0] == small_config.text_config.vocab_size


def test_the_configuration_is_written_as_it_was_given(small_checkpoint, small_config):
    written = json.loads((small_checkpoint / "config.json").read_text())
    assert written == small_config.to_dict()
