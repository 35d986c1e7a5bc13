"""Is a replay refused that would give wrong keys?"""

from dataclasses import replace
from typing import Any

import pytest
import torch
from deepinfer_core.cache.replay import DecoderTruncation
from deepinfer_core.cache.storage import Caches
from deepinfer_core.errors import ConfigError, NotSupported
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.model.evaluate import fresh_caches, text_step
from deepinfer_core.model.replay import check_replay, decoder_rows
from deepinfer_core.model.step import StepInputs
from deepinfer_core.testing.tiny import golden_tokens, tiny_test_config
from deepinfer_core.testing.tiny_model import tiny_model

MASK = DecoderTruncation(mode="mask", keep_tokens=22)
COMPACT = DecoderTruncation(mode="compact", keep_tokens=22)


@pytest.fixture(scope="module")
def plain_model() -> TextModel:
    return tiny_model(Numerics())


@pytest.fixture(scope="module")
def caches(plain_model: TextModel) -> Caches:
    return fresh_caches(plain_model, 60)


@pytest.fixture
def step(caches: Caches) -> StepInputs:
    return text_step(golden_tokens(60), 16, 40, caches)


def check(step: StepInputs, caches: Caches, config: ModelConfig | None = None) -> None:
    check_replay(step, config or tiny_test_config(), caches.layout)


def test_a_step_says_nothing_about_replay_unless_told(step: StepInputs, caches: Caches) -> None:
    assert step.truncation is None
    assert step.cached_ends == step.keep_from == (0,)
    check(step, caches)


@pytest.mark.parametrize(
    "fields",
    [
        {"truncation": MASK, "keep_from": (0,)},
        {"truncation": MASK, "keep_from": (20,)},
        {"truncation": COMPACT, "keep_from": (1000,)},
        {"cached_ends": (32,), "valid_starts": (16,)},
        {"cached_ends": (16,), "valid_starts": (16,)},
        {"cached_ends": (32,), "valid_starts": (15,)},
        {"cached_ends": (32,), "valid_starts": (0,)},
    ],
    ids=str,
)
def test_a_replay_that_fits_is_accepted(
    step: StepInputs, caches: Caches, fields: dict[str, Any]
) -> None:
    check(replace(step, **fields), caches)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"cached_ends": (32,), "valid_starts": (17,)}, "from position 16 on, found that window"),
        ({"cached_ends": (14,), "valid_starts": (16,)}, "cached entries only up to 14"),
        ({"valid_starts": (16,)}, "cached entries only up to 0"),
        ({"cached_ends": (33,), "valid_starts": (16,)}, "position 33, found entries of 2 tokens"),
        ({"keep_from": (20,)}, "from 20 on, found no truncation"),
    ],
    ids=str,
)
def test_positions_that_contradict_each_other_are_refused(
    step: StepInputs, caches: Caches, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(NotSupported, match=message):
        check(replace(step, **fields), caches)


def test_keeping_less_than_a_window_and_backtracking_is_refused_by_the_model(
    plain_model: TextModel, caches: Caches, step: StepInputs
) -> None:
    few = DecoderTruncation(mode="mask", keep_tokens=21)
    with pytest.raises(ConfigError, match="keep at least 22 tokens"):
        plain_model.forward(replace(step, truncation=few), caches)


def test_an_engram_in_the_decoder_half_forbids_truncation(step: StepInputs, caches: Caches) -> None:
    config = tiny_test_config(engram_layer_ids=[1, 6])
    check(step, caches, config)
    with pytest.raises(NotSupported, match="Engram in its layer 6"):
        check(replace(step, truncation=MASK), caches, config)


@pytest.mark.parametrize("targets", [[5, 6, 7], [0, 1, 11]], ids=str)
def test_a_drafter_that_listens_to_both_halves_forbids_truncation(
    step: StepInputs, caches: Caches, targets: list[int]
) -> None:
    config = tiny_test_config(dspark_target_layer_ids=targets)
    check(step, caches, config)
    with pytest.raises(NotSupported, match="both sides of layer 6"):
        check(replace(step, truncation=COMPACT), caches, config)


@pytest.mark.parametrize("targets", [[3, 4, 5], [6, 7, 8], [9, 10, 11]], ids=str)
def test_a_drafter_that_listens_to_one_half_allows_truncation(
    step: StepInputs, caches: Caches, targets: list[int]
) -> None:
    config = tiny_test_config(dspark_target_layer_ids=targets)
    check(replace(step, truncation=COMPACT), caches, config)


@pytest.mark.parametrize(("keep_from", "removed"), [(16, 0), (17, 1), (39, 23), (40, 23), (99, 23)])
def test_logits_of_a_row_that_is_taken_out_are_refused(
    step: StepInputs, keep_from: int, removed: int
) -> None:
    compacted = replace(step, truncation=COMPACT, keep_from=(keep_from,))
    rows = decoder_rows(replace(compacted, sample_row_R=torch.tensor([23, removed])))
    assert rows.inputs.sample_row_R.tolist() == [23 - removed, 0]
    if removed:
        lost = replace(compacted, sample_row_R=torch.tensor([23, removed - 1]))
        with pytest.raises(NotSupported, match=f"logits of row {removed - 1}, found"):
            decoder_rows(lost)
