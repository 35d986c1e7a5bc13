"""A mixture of all that can happen to requests leaves an engine as it was."""

import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.outputs import Completion
from deepinfer_core.errors import EngineError
from deepinfer_core.testing.seeds import seed_of
from deepinfer_core.testing.soak import Soak

pytestmark = pytest.mark.slow

SIZES = {
    "max_num_seqs": 32,
    "max_model_len": 512,
    "max_num_batched_tokens": 1024,
    "num_blocks": 14,
    "snapshot_slots": 4,
}
"""So few blocks and slots that sequences lose theirs, and snapshots make room."""


@pytest.fixture(scope="module")
def opened(byte_checkpoint: Path) -> Iterator[LLM]:
    with LLM(byte_checkpoint, **SIZES) as llm:
        yield llm


@pytest.fixture
def small(opened: LLM) -> Iterator[LLM]:
    runner = opened.engine.runner
    yield opened
    opened.engine.runner = runner
    opened.engine.reset()


def held() -> tuple[int, int]:
    """Threads and open files."""
    gc.collect()
    return threading.active_count(), len(os.listdir("/proc/self/fd"))


def test_every_request_is_answered_once_and_everything_is_given_back(
    byte_checkpoint: Path, request: pytest.FixtureRequest
) -> None:
    LLM(byte_checkpoint, **SIZES).close()
    before = held()
    with LLM(byte_checkpoint, **SIZES) as llm:
        soak = Soak(llm, seed_of(request), failing_share=0.06, round_requests=40)
        soak.run(400)
        counts, cache = soak.counts, llm.engine.batch.pages.cache
        assert {"length", "abort", "request_error", "engine_error"} <= set(counts.answers)
        assert sum(counts.answers.values()) + counts.left > counts.requests == 400
        assert min(counts.probes, counts.cached_tokens, cache.evicted_snapshots) > 0
        assert soak.faults.failures
    del llm, soak, cache
    assert held() == before


def test_an_answer_that_never_comes_is_noticed(
    small: LLM, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    soak = Soak(small, seed_of(request))
    take = Soak._take

    def forgetful(self: Soak, open_places: Any, asked: Any, done: Completion) -> None:
        if done.index:
            take(self, open_places, asked, done)

    monkeypatch.setattr(Soak, "_take", forgetful)
    with pytest.raises(EngineError, match="were never answered"):
        soak.run(4)


def test_an_answer_that_comes_twice_is_noticed(
    small: LLM, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    soak = Soak(small, seed_of(request))
    take = Soak._take

    def twice(self: Soak, open_places: Any, asked: Any, done: Completion) -> None:
        take(self, open_places, asked, done)
        take(self, open_places, asked, done)

    monkeypatch.setattr(Soak, "_take", twice)
    with pytest.raises(EngineError, match="was answered twice"):
        soak.run(4)


def test_a_block_that_is_lost_is_noticed(small: LLM, request: pytest.FixtureRequest) -> None:
    soak = Soak(small, seed_of(request))
    soak.check_rest()
    cache = small.engine.batch.pages.cache
    lost = cache.take(1)
    with pytest.raises(EngineError, match="held otherwise than counted"):
        soak.check_rest()
    cache.release(lost)


def test_another_answer_to_a_probe_is_noticed(
    small: LLM, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    soak = Soak(small, seed_of(request), failing_share=0.0)
    soak._known = [(7,)] * len(soak._known)
    monkeypatch.setattr(soak, "_request", lambda share: soak._probes[0])
    with pytest.raises(EngineError, match="probe 0 gave"):
        soak.run(1)
