"""Does a request have the same bits on the GPU whatever happens around it?

The requests are those of the CPU (``tests/e2e``); kernels of ``nvidia.tilelang`` are in every slot,
the sampler's too, and weights are stored as in a checkpoint.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from deepinfer_core.config import load_settings, resolve_components
from deepinfer_core.engine.decode_graphs import DecodeGraphs
from deepinfer_core.engine.model_loading import model_parts
from deepinfer_core.interfaces.operators.wanted import WantedKernel
from deepinfer_core.interfaces.sampler import Sampler
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.plugin import load
from deepinfer_core.testing.beginnings import FORCED, LONGEST, words
from deepinfer_core.testing.cold_text import ColdText, cold_text
from deepinfer_core.testing.rehearsed_engines import engine_kernels
from deepinfer_core.testing.small_engines import (
    EngineShape,
    SmallEngine,
    slim_config,
    small_engine,
)
from deepinfer_core.testing.sweeps import (
    CachedLengthsSweep,
    ChunkSizesSweep,
    ColdTexts,
    CompanySweep,
    DraftsSweep,
    MakeEngine,
    ModesSweep,
    swept_engines,
)
from deepinfer_core.testing.tiny_model import stored_tiny_model

SlimModels = Callable[..., TextModel]
KINDS = ("attention", "gemm", "sampler", "transform")


@pytest.fixture(scope="session")
def picked(
    compile_ahead: Callable[[Sequence[WantedKernel], str], None],
) -> tuple[ModelParts, Sampler]:
    """The components under test, whose kernels are compiled."""
    pins = [f"components.{kind}.use=nvidia.tilelang" for kind in KINDS]
    loaded = load_settings(overrides=["device=nvidia", *pins], environ={})
    resolved = resolve_components(loaded).require()
    numerics = loaded.settings.model.numerics.numerics()
    compile_ahead(engine_kernels(swept_engines(), resolved, numerics), resolved.context.cache_dir)
    return model_parts(resolved, loaded.settings), load(resolved, "sampler")


@pytest.fixture(scope="session")
def slim_models(
    picked: tuple[ModelParts, Sampler], tmp_path_factory: pytest.TempPathFactory
) -> SlimModels:
    """Gives the model of a window and overrides; made once."""
    made: dict[str, TextModel] = {}

    def make(window: int, **overrides: Any) -> TextModel:
        key = f"{window} {overrides}"
        if key not in made:
            folder = tmp_path_factory.mktemp("slim") / "checkpoint"
            made[key] = stored_tiny_model(folder, slim_config(window, **overrides), picked[0])
        return made[key]

    return make


@pytest.fixture(scope="session")
def cold_texts(slim_models: SlimModels) -> ColdTexts:
    """Gives the text of the sweeps; made once for each model."""
    made: dict[int, ColdText] = {}

    def make(window: int, **overrides: Any) -> ColdText:
        model = slim_models(window, **overrides)
        if id(model) not in made:
            made[id(model)] = cold_text(model, words("text", LONGEST + FORCED))
        return made[id(model)]

    return make


@pytest.fixture(scope="session")
def make_engine(picked: tuple[ModelParts, Sampler]) -> MakeEngine:
    """Puts engines together that launch every step piece by piece."""
    return partial(small_engine, sampler=picked[1])


@pytest.fixture(scope="module")
def model(slim_models: SlimModels) -> TextModel:
    """With a window of 16."""
    return slim_models(16)


class TestCachedLengths(CachedLengthsSweep):
    """Prompts of every length, cold and cached."""


class TestChunkSizes(ChunkSizesSweep):
    """Prompts in chunks of every size."""


class TestModes(ModesSweep):
    """Asynchronous or not, mixed or in turns, shared or not."""


class TestCompany(CompanySweep):
    """Alone, first, last and in the middle."""


class TestDrafts(DraftsSweep):
    """With drafts, right, wrong and none."""


class TestRecordedCompany(TestCompany):
    """The same with decode steps that are repeated from recordings."""

    @pytest.fixture
    def make_engine(self, picked: tuple[ModelParts, Sampler]) -> MakeEngine:
        def make(model: TextModel, shape: EngineShape) -> SmallEngine:
            engine = small_engine(model, shape, sampler=picked[1])
            engine.runner.graphs = DecodeGraphs(
                model,
                engine.runner.caches,
                max_sequences=shape.max_sequences,
                max_tokens=shape.longest,
                block_tokens=shape.block_tokens,
            )
            engine.runner.graphs.record()
            assert engine.runner.graphs.recorded
            return engine

        return make
