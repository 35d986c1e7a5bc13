"""Engines over the small checkpoint."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.engine.llm import LLM
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.testing.beginnings import FORCED, LONGEST, words
from deepinfer_core.testing.cold_text import ColdText, cold_text
from deepinfer_core.testing.small_engines import slim_config, small_engine
from deepinfer_core.testing.sweeps import MakeEngine
from deepinfer_core.testing.tiny_model import tiny_model

MakeLLM = Callable[..., LLM]


@pytest.fixture(scope="session")
def cold_texts() -> Callable[..., ColdText]:
    """Gives the text of the sweeps, fed to a slim model of a window and overrides; made once."""
    made: dict[object, ColdText] = {}

    def make(window: int, numerics: Numerics | None = None, **overrides: Any) -> ColdText:
        key = (window, numerics, *overrides)
        if key not in made:
            config = slim_config(window, **overrides)
            model = tiny_model(numerics or Numerics(), config=config)
            made[key] = cold_text(model, words("text", LONGEST + FORCED))
        return made[key]

    return make


@pytest.fixture(scope="session")
def make_engine() -> MakeEngine:
    """Puts engines of the sweeps together."""
    return small_engine


@pytest.fixture(scope="module")
def llm(byte_checkpoint: Path) -> Iterator[LLM]:
    with LLM(byte_checkpoint, max_num_seqs=4, max_model_len=512) as opened:
        yield opened


@pytest.fixture
def make_llm(byte_checkpoint: Path) -> Iterator[MakeLLM]:
    opened: list[LLM] = []

    def build(**overrides: object) -> LLM:
        settings = {"max_num_seqs": 4, "max_model_len": 512, **overrides}
        opened.append(LLM(byte_checkpoint, **settings))
        return opened[-1]

    yield build
    for one in opened:
        one.close()
