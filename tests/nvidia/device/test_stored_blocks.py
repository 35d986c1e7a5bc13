"""Has an answer behind blocks and states that came from a store the bits of a run without one?

On the GPU: blocks are copied from its memory into that of the fetcher, and back, beside its steps.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from deepinfer_core.config.checkpoints import shipped_checkpoints
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.outputs import Completion
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.testing.beginnings import words

pytestmark = pytest.mark.skipif(
    not shipped_checkpoints(), reason="pip install -e plugins/deepinfer_tiny runs these"
)

KINDS = ("all_to_all", "attention", "gemm", "sampler", "transform")
SIZES = {"max_num_seqs": 4, "max_model_len": 1024, "max_num_batched_tokens": 256}
STORE = {
    "components": {
        **{kind: {"use": "nvidia.tilelang"} for kind in KINDS},
        "kv_store": {"use": "core.memory"},
    },
    "kv_store": {"match_timeout_s": 20.0, "fetch_timeout_s": 60.0, "fetch_patience": 1e9},
}
PROMPTS = [words(f"stored {number}", length) for number, length in enumerate((300, 517, 640))]
ANSWERS = [
    SamplingParams(temperature=temperature, seed=5, max_tokens=24, ignore_eos=True, logprobs=3)
    for temperature in (0.0, 1.0, 1.0)
]


@pytest.fixture(params=["off", "mask"])
def llm(request: pytest.FixtureRequest) -> Iterator[LLM]:
    llm = LLM(device="nvidia", replay=request.param, **SIZES, **STORE)
    yield llm
    llm.close()


def ask(llm: LLM) -> list[Completion]:
    return llm.generate(prompt_token_ids=PROMPTS, sampling_params=ANSWERS)


def bits(answers: list[Completion]) -> list[Any]:
    return [(one.token_ids, one.logprobs) for one in answers]


def sources(answers: list[Completion]) -> list[tuple[int | None, int]]:
    return [(one.usage.stored_tokens, one.usage.cached_tokens) for one in answers]


def wait_for_store(llm: LLM) -> None:
    """Until all that was handed over is kept; a minute is an error."""
    exchange = llm.engine.batch.pages.exchange
    assert exchange is not None
    exchange.flush()
    until_s = time.monotonic() + 60
    while exchange._traffic.counts().writing:
        assert time.monotonic() < until_s
        exchange.linger()
        exchange._traffic.poll()


def test_answers_behind_stored_blocks_have_the_bits_of_cold_ones(llm: LLM) -> None:
    cold = ask(llm)
    assert sources(cold) == [(0, 0)] * 3
    wait_for_store(llm)
    for _ in range(3):
        llm.engine.batch.pages.cache.clear()
        stored = ask(llm)
        assert bits(stored) == bits(cold)
        assert all(found > 0 for found, _ in sources(stored))
    warm = ask(llm)
    assert bits(warm) == bits(cold)
    assert all(found == 0 for found, _ in sources(warm))
