"""Are requests served while the volume under their store loses bricks?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.testing.beginnings import words

PATIENT = {"match_timeout_s": 20.0, "fetch_timeout_s": 60.0, "fetch_patience": 1e9}
PROMPTS = [words(f"stored {number}", 300 + 16 * number) for number in range(4)]
STORED = [256] * len(PROMPTS)
"""Tokens of whole blocks, of 128 each."""


@pytest.fixture
def engine(volume: Any, byte_checkpoint: Path) -> Iterator[Callable[[int], LLM]]:
    """An engine with a store on one of the mounts, as on a machine of its own."""
    opened: list[LLM] = []

    def make(mount: int) -> LLM:
        options = {"folder": str(volume.mounts[mount] / "engines"), "refresh_s": 0.2}
        components = {"kv_store": {"use": "threefs.posix", "options": options}}
        llm = LLM(
            byte_checkpoint,
            max_num_seqs=4,
            max_model_len=512,
            components=components,
            kv_store=PATIENT,
        )
        opened.append(llm)
        return llm

    yield make
    volume.restore()
    for llm in opened:
        llm.close()


def answers(llm: LLM) -> tuple[list[Any], list[int]]:
    """Tokens of all answers, and how many of each prompt came from the store."""
    llm.engine.batch.pages.cache.clear()
    answered = []
    for seed, prompt in enumerate(PROMPTS):
        drawn = SamplingParams(temperature=1, seed=seed, max_tokens=8, ignore_eos=True)
        answered += llm.generate(prompt_token_ids=[prompt], sampling_params=drawn)
    assert [one.error for one in answered] == [None] * len(PROMPTS)
    return [one.token_ids for one in answered], [one.usage.stored_tokens for one in answered]


def written(llm: LLM) -> bool:
    """Whether all blocks of all prompts are in the store."""
    exchange = llm.engine.batch.pages.exchange
    assert exchange is not None
    reports = exchange._traffic.counts().stores
    return "blocks" in reports and reports["blocks"].records == sum(STORED) // 128


def test_requests_are_served_from_the_store_and_without_it_by_computing(
    volume: Any, engine: Callable[[int], LLM]
) -> None:
    first = engine(0)
    cold, stored = answers(first)
    assert stored == [0] * len(PROMPTS)
    limit_s = time.monotonic() + 60.0
    while not written(first):  # closing waits for a moment only
        assert time.monotonic() < limit_s
        time.sleep(0.1)
    first.close()

    second = engine(1)
    assert answers(second) == (cold, STORED)
    volume.kill(2, 9)
    assert answers(second) == (cold, STORED)
    volume.kill(5)
    for _ in range(3):
        assert answers(second) == (cold, [0] * len(PROMPTS))
