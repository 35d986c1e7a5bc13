"""Does what is compiled before the sweeps of the device hold every kernel that they call?

The sweeps themselves, on components of the reference, with those of this distribution beside them
that note down their calls: one test for each form of caches, steps and draws.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.config import load_settings, resolve_components
from deepinfer_core.interfaces.operators.rehearsal import NotedKernels
from deepinfer_core.interfaces.operators.wanted import Rehearsal, WantedKernel
from deepinfer_core.interfaces.sampler import Sampler
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.plugin import BuildContext, DeviceTarget, ModelNeeds, Resolved
from deepinfer_core.reference import sampler as reference_sampler
from deepinfer_core.testing.beginnings import FORCED, LONGEST, words
from deepinfer_core.testing.cold_text import ColdText, cold_text
from deepinfer_core.testing.noted_components import NotedComponent, noted_parts
from deepinfer_core.testing.rehearsed_engines import engine_kernels
from deepinfer_core.testing.small_engines import Answer, Ask, slim_config, small_engine
from deepinfer_core.testing.sweeps import (
    ChunkSizesSweep,
    ColdTexts,
    DraftsSweep,
    MakeEngine,
    ModesSweep,
    swept_engines,
)
from deepinfer_core.testing.tiny_model import reference_parts, stored_tiny_model
from deepinfer_nvidia.kernels.launch import TileLangCompiler
from deepinfer_nvidia.sampler.tilelang import TileLangSampler

KINDS = ("attention", "gemm", "sampler", "transform")


@pytest.fixture(scope="module")
def resolved(tmp_path_factory: pytest.TempPathFactory) -> Resolved:
    """What the sweeps of the device pick, without the device."""
    pins = [f"components.{kind}.use=nvidia.tilelang" for kind in KINDS]
    folder = f"kernels.cache_dir={tmp_path_factory.mktemp('kernels')}"
    loaded = load_settings(overrides=["device=nvidia", *pins, folder], environ={})
    return resolve_components(loaded, ModelNeeds(), DeviceTarget(arch="sm_90a")).require()


@pytest.fixture(scope="module")
def rehearsed(resolved: Resolved, numbered: ModelParts) -> set[WantedKernel]:
    """What is compiled before."""
    return set(engine_kernels(swept_engines(), resolved, numbered.numerics))


@pytest.fixture(scope="module")
def noted() -> Rehearsal:
    """What is called."""
    return Rehearsal()


@pytest.fixture(scope="module")
def kernels(resolved: Resolved, noted: Rehearsal) -> NotedKernels:
    folder = Path(resolved.context.cache_dir) / "nvidia"
    return NotedKernels(noted, TileLangCompiler("sm_90a", folder))


@pytest.fixture(autouse=True)
def called_is_rehearsed(noted: Rehearsal, rehearsed: set[WantedKernel]) -> Any:
    """Behind each test."""
    yield
    missing = [one for one in noted.wanted if one not in rehearsed]
    assert [(one.operator, one.spec, one.tuning) for one in missing] == []
    assert noted.wanted


@pytest.fixture(scope="module")
def numbered() -> ModelParts:
    """With numbers."""
    loaded = load_settings(overrides=[], environ={})
    return reference_parts(loaded.settings.model.numerics.numerics())


@pytest.fixture(scope="module")
def parts(
    numbered: ModelParts, kernels: NotedKernels, with_kernels: Callable[..., ModelParts]
) -> ModelParts:
    return noted_parts(numbered, with_kernels(numbered, kernels))


@pytest.fixture(scope="module")
def sampler(kernels: NotedKernels) -> Sampler:
    reference = reference_sampler.build(None, BuildContext(device="cpu", needs=ModelNeeds()))
    both: Any = NotedComponent(reference, TileLangSampler(kernels, "cpu"))
    return both


@pytest.fixture(scope="module")
def slim_models(
    parts: ModelParts, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., TextModel]:
    made: dict[str, TextModel] = {}

    def make(window: int, **overrides: Any) -> TextModel:
        key = f"{window} {overrides}"
        if key not in made:
            folder = tmp_path_factory.mktemp("slim") / "checkpoint"
            made[key] = stored_tiny_model(folder, slim_config(window, **overrides), parts)
        return made[key]

    return make


@pytest.fixture(scope="module")
def cold_texts(slim_models: Callable[..., TextModel]) -> ColdTexts:
    made: dict[int, ColdText] = {}

    def make(window: int, **overrides: Any) -> ColdText:
        model = slim_models(window, **overrides)
        if id(model) not in made:
            made[id(model)] = cold_text(model, words("text", LONGEST + FORCED))
        return made[id(model)]

    return make


@pytest.fixture(scope="module")
def make_engine(sampler: Sampler) -> MakeEngine:
    return partial(small_engine, sampler=sampler)


@pytest.fixture(scope="module")
def model(slim_models: Callable[..., TextModel]) -> TextModel:
    return slim_models(16)


class TestModes(ModesSweep):
    """Likeliest tokens and scores of prompts too, in too few blocks."""

    test_modes_of_stepping_and_reuse_change_no_bit = None

    def test_modes_change_no_bit_when_blocks_are_short(
        self, cold: ColdText, make_engine: MakeEngine, asks: list[Ask], plain: list[Answer]
    ) -> None:
        super().test_modes_change_no_bit_when_blocks_are_short(
            cold, make_engine, asks, plain, (True, True, True)
        )


class TestChunkSizes(ChunkSizesSweep):
    """Windows and blocks of 128."""

    test_a_prompt_alone_gives_the_same_bits_in_chunks_of_every_size = None
    test_a_prompt_gives_the_same_bits_beside_a_decoding_row_in_steps_of_every_size = None
    test_a_prompt_gives_the_same_bits_in_turns_with_decoding_rows = None

    def test_chunks_around_a_window_of_the_full_model_s_length_give_the_same_bits(
        self, cold_texts: ColdTexts, make_engine: MakeEngine
    ) -> None:
        super().test_chunks_around_a_window_of_the_full_model_s_length_give_the_same_bits(
            cold_texts, make_engine, 130
        )


class TestDrafts(DraftsSweep):
    """The draft network under the rule of ratios, and more drafts than it gives."""

    test_the_match_rule_gives_every_bit_of_decoding_without_drafts = None
    test_any_room_gives_the_same = None
    test_states_and_blocks_that_are_kept_while_drafting_are_those_of_the_text = None
    test_samples_of_one_prompt_are_those_without_drafts = None

    @pytest.mark.parametrize("drafts", [8])
    def test_any_number_of_drafts_gives_the_same(
        self,
        model: TextModel,
        make_engine: MakeEngine,
        asks: list[Ask],
        plain: list[Answer],
        texts: list[tuple[int, ...]],
        drafts: int,
    ) -> None:
        super().test_any_number_of_drafts_gives_the_same(
            model, make_engine, asks, plain, texts, drafts
        )

    def test_a_greedy_answer_is_the_same_under_the_ratio_rule(
        self,
        model: TextModel,
        make_engine: MakeEngine,
        asks: list[Ask],
        plain: list[Answer],
        texts: list[tuple[int, ...]],
    ) -> None:
        super().test_a_greedy_answer_is_the_same_under_the_ratio_rule(
            model, make_engine, asks, plain, texts, "block", True
        )
