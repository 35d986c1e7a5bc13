"""Is a shallow model one of the same layers?"""

from collections import Counter
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from deepinfer_core.bench.layers.depth import (
    kind_of,
    kinds_of,
    layer_bytes,
    pick_layers,
    shallow_config,
)
from deepinfer_core.bench.layers.work import Storage
from deepinfer_core.errors import ConfigError
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.model.engram_primes import hash_primes
from deepinfer_core.testing.tiny import tiny_test_config
from deepinfer_core.weights.manifest import manifest_of

TRUE = ModelConfig.from_file(
    Path(str(files("deepinfer_core.model") / "data" / "deepseek_v41_flash.json"))
)


def shallow(count: int, config: ModelConfig = TRUE) -> ModelConfig:
    return shallow_config(config, pick_layers(config, count), table_rows=10_000)


def test_the_model_has_eight_kinds_of_layers() -> None:
    # Window; window and memory; pairs: owner, owner and memory, borrower; tokens: owner, selector,
    # borrower.
    assert list(kinds_of(TRUE).values()) == [1, 1, 2, 15, 1, 1, 15, 4]


@pytest.mark.parametrize("count", [8, 9, 16, 17, 39, 40])
def test_every_kind_is_there_and_near_its_share(count: int) -> None:
    found, whole = kinds_of(shallow(count)), kinds_of(TRUE)
    assert sum(found.values()) == count
    assert set(found) == set(whole)
    for kind, number in whole.items():
        # One of each kind is given; the rest cannot lift a kind above its share by a whole layer.
        assert 1 <= found[kind] <= max(1, number * count / 40 + 1)


def test_all_layers_are_the_whole_model_without_its_drafter() -> None:
    assert pick_layers(TRUE, 40) == tuple(range(40))
    whole = shallow_config(TRUE, range(40), table_rows=None)
    assert [kind_of(plan) for plan in whole.backbone_layers] == [
        kind_of(plan) for plan in TRUE.backbone_layers
    ]
    assert whole.text_config.engram_num_embeddings == TRUE.text_config.engram_num_embeddings
    assert not whole.drafter_layers


def test_layers_keep_their_kinds_and_find_their_keys() -> None:
    picked = pick_layers(TRUE, 16)
    config = shallow_config(TRUE, picked, table_rows=10_000)
    for plan, layer in zip(config.backbone_layers, picked, strict=True):
        assert kind_of(plan) == kind_of(TRUE.layers[layer])
        assert (plan.kv_source is None) == (plan.ratio == 0)


@pytest.mark.parametrize("count", [7, 41])
def test_fewer_layers_than_kinds_and_more_than_there_are_is_refused(count: int) -> None:
    with pytest.raises(ConfigError, match="8 kinds"):
        pick_layers(TRUE, count)


def test_shapes_are_those_of_the_model_but_for_tables() -> None:
    small = manifest_of(shallow(12)).weights
    whole = manifest_of(TRUE).weights
    picked = pick_layers(TRUE, 12)
    for name, spec in small.items():
        first, _, rest = name.partition(".")
        number, _, rest = rest.partition(".") if first == "layers" else ("", "", "")
        original = f"layers.{picked[int(number)]}.{rest}" if number else name
        if not name.endswith("engram.embed.weight"):
            assert spec.shape == whole[original].shape, name


def test_tables_have_about_as_many_rows_as_asked_and_sub_tables_of_primes() -> None:
    text = shallow(8).text_config
    primes = hash_primes(layers=2, orders=3, heads=8, smallest=10_000 // 24)
    assert text.engram_num_embeddings == tuple(map(sum, primes))
    assert all(10_000 <= rows < 20_000 for rows in text.engram_num_embeddings)


def test_bytes_of_a_layer_are_those_of_its_weights() -> None:
    storage = Storage(
        dense=2, expert=0.5, plain=3, activation=2, window_row=1, entry_row=1, index_row=1
    )
    config = tiny_test_config()
    layer, outside = layer_bytes(config, storage)
    text = config.text_config
    # Embedding, head and last norm are bf16.
    assert outside == 3 * (2 * text.vocab_size * 128 + 128)
    one = replace(storage, dense=0, plain=0)
    # Eight experts of three matrices; fp32 are mixes, sinks and biases.
    fp32 = 2 * (24 * 512 + 24 + 3) + 4 + 2 * 8
    assert layer_bytes(config, one)[0] == 8 * 3 * 128 * 64 * 0.5 + 4 * fp32
    assert layer > layer_bytes(config, one)[0]


def test_picking_takes_the_first_layers_of_a_kind() -> None:
    config = tiny_test_config()
    picked = pick_layers(config, 8)
    kinds = Counter(kind_of(config.layers[layer]) for layer in picked)
    for kind, count in kinds.items():
        every = [plan.index for plan in config.backbone_layers if kind_of(plan) == kind]
        assert [layer for layer in picked if layer in every] == every[:count]
