"""Engines over the small checkpoint."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deepinfer_core.engine.llm import LLM

MakeLLM = Callable[..., LLM]


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
