"""What keeps a drafter from becoming part of an engine, and what is said then?"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.config import load_settings
from deepinfer_core.config.components import NgramOptions
from deepinfer_core.engine.drafts.opening import open_stage
from deepinfer_core.engine.drafts.settings import check_speculation
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import ConfigError, DeepInferError, NotSupported
from deepinfer_core.interfaces.drafter import DraftHost
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.caches import allocate_caches
from deepinfer_core.reference.ngram import NgramDrafter
from deepinfer_core.reference.sampler import ReferenceSampler
from deepinfer_core.testing.block_drafter import BlockDrafter
from deepinfer_core.testing.small_engines import slim_config
from deepinfer_core.testing.tiny_model import tiny_model

NGRAM = {"components": {"drafter": {"use": "core.ngram"}}}
SIZES = {"max_model_len": 256, "max_num_seqs": 2, "asynchronous": False}


class Unable(ReferenceSampler):
    """Has no ratio rule."""

    def plan_ratio(self, *arguments: Any) -> Any:
        return super(ReferenceSampler, self).plan_ratio(*arguments)


@pytest.fixture(scope="module")
def model() -> TextModel:
    return tiny_model(Numerics(), config=slim_config(16))


def opened(model: TextModel, drafter: Any, sampler: Any = None, **changes: Any) -> Any:
    parts = model.parts
    caches = allocate_caches(
        model.config, parts.numerics, parts.codec, parts.device,
        num_blocks=2, num_slots=2, max_backtracking=6,
    )  # fmt: skip
    host = DraftHost(
        drafts=5, vocabulary=model.config.text_config.vocab_size, max_sequences=2, max_tokens=64,
        rule="match", torch_device=parts.device.torch_device,
    )  # fmt: skip
    host = replace(host, **changes)
    return open_stage(drafter, host, model, caches, sampler or ReferenceSampler())


def test_a_drafter_that_gives_fewer_drafts_says_how_many(model: TextModel) -> None:
    assert opened(model, BlockDrafter()).host.drafts == 5
    with pytest.raises(ConfigError, match=r"max_drafts is 6, the drafter gives 5 at most"):
        opened(model, BlockDrafter(), drafts=6)


def test_a_drafter_that_needs_a_network_is_refused_without_one(model: TextModel) -> None:
    without = replace(model, drafter=None)
    assert opened(without, NgramDrafter(NgramOptions())).host.block is None
    with pytest.raises(NotSupported, match="found a checkpoint without one") as caught:
        opened(without, BlockDrafter())
    assert "core.ngram" in str(caught.value.hint)


def test_a_sampler_without_the_ratio_rule_is_refused_when_the_engine_starts(
    model: TextModel,
) -> None:
    assert not opened(model, BlockDrafter(), Unable()).keeps_laws
    with pytest.raises(NotSupported, match="found a sampler that cannot verify by it") as caught:
        opened(model, BlockDrafter(), Unable(), rule="ratio")
    assert 'speculation.rule = "match"' in str(caught.value.hint)


def test_laws_are_kept_only_of_drafts_that_are_drawn_and_accepted_by_them(
    model: TextModel,
) -> None:
    assert opened(model, BlockDrafter(), rule="ratio").keeps_laws
    assert not opened(model, NgramDrafter(NgramOptions()), rule="ratio").keeps_laws


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("speculation.max_drafts=3", "speculation.max_drafts = 3 (from --set"),
        ("speculation.rule=ratio", "speculation.rule = 'ratio' (from --set"),
        ("speculation.budget=planned", "speculation.budget = 'planned' (from --set"),
    ],
)
def test_speculation_without_a_drafter_is_refused_with_what_to_install(
    asked: str, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_speculation(load_settings(None, (asked,), environ={}))
    assert said in caught.value.message
    assert "install deepinfer-dspark" in str(caught.value.hint)


@pytest.mark.parametrize(
    "asked", ["speculation.max_drafts=0", "speculation.rule=match", "speculation.budget=fixed"]
)
def test_what_asks_for_no_speculation_needs_no_drafter(asked: str) -> None:
    check_speculation(load_settings(None, (asked,), environ={}))
    check_speculation(load_settings(None, (), environ={}))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"components": {"drafter": {"use": "dspark.block"}}}, "install deepinfer-dspark"),
        ({**NGRAM, "speculation": {"budget": "planned"}}, "found a drafter that plans nothing"),
        ({**NGRAM, "speculation": {"max_drafts": 7}, "max_num_batched_tokens": 15}, "16 rows"),
        ({"speculation": {"max_drafts": 2}}, "but nobody drafts"),
    ],
)
def test_an_engine_that_cannot_draft_does_not_start(
    byte_checkpoint: Path, overrides: dict[str, Any], said: str
) -> None:
    plugins = {"autoload": False}
    with pytest.raises(DeepInferError, match=said):
        LLM(byte_checkpoint, plugins=plugins, **{**SIZES, **overrides})


def test_no_drafts_can_be_asked_for_with_a_drafter_named(byte_checkpoint: Path) -> None:
    with LLM(byte_checkpoint, speculation={"max_drafts": 0}, **NGRAM, **SIZES) as llm:
        assert llm.engine.batch.drafting is None
        [done] = llm.generate([[10, 11]], SamplingParams(max_tokens=3, ignore_eos=True))
        assert len(done.token_ids) == 3


def test_options_of_a_drafter_reach_it(byte_checkpoint: Path) -> None:
    drafter = {"use": "core.ngram", "options": {"shortest": 1, "longest": 3}}
    with LLM(byte_checkpoint, components={"drafter": drafter}, **SIZES) as llm:
        stage = llm.engine.runner.stage  # type: ignore[attr-defined]
        assert (stage.drafter.options.shortest, stage.drafter.options.longest) == (1, 3)
        assert stage.host.checkpoint
        assert len(stage.host.identity) == 64


def test_the_memory_plan_counts_the_tokens_that_a_drafter_reads(byte_checkpoint: Path) -> None:
    """Two sequences and padding, 256 positions and one more, 8 bytes each."""
    with LLM(byte_checkpoint, **NGRAM, **SIZES) as llm:
        stage, sizes = llm.engine.runner.stage, llm.loaded.memory.sizes
        assert stage._token_SL.nbytes == sizes.tokens_bytes == 8 * 3 * 257
    with LLM(byte_checkpoint, **SIZES) as llm:
        assert llm.loaded.memory.sizes.tokens_bytes == 0
