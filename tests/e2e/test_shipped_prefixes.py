"""The shipped checkpoint, as it is loaded by default: cold equals cached around its boundaries."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from deepinfer_core.config import checkpoint_folder
from deepinfer_core.config.checkpoints import shipped_checkpoints
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.outputs import Completion
from deepinfer_core.engine.sampling_params import SamplingParams

pytestmark = pytest.mark.skipif(
    not shipped_checkpoints(), reason="pip install -e plugins/deepinfer_tiny runs these"
)

STORY = "Once upon a time, there was a little dog who lived in a big house. "
SAMPLED = SamplingParams(temperature=1, seed=3, max_tokens=2, logprobs=2)
# A block has 128 tokens, as the window; groups are pairs. At a multiple of 128 a prompt still needs
# its last row, so it reuses one block fewer.
LENGTHS = [127, 128, 129, 130, 255, 256, 257, 258, 300]


def bits(done: Completion) -> tuple[object, ...]:
    assert done.error is None
    return done.text, done.token_ids, done.logprobs


@pytest.fixture(scope="module")
def folder() -> Path:
    return checkpoint_folder(None)


@pytest.fixture(scope="module")
def cold(folder: Path) -> Iterator[LLM]:
    with LLM(folder, max_model_len=512, prefix_cache=False) as opened:
        yield opened


@pytest.fixture(scope="module")
def prompts(cold: LLM) -> list[list[int]]:
    text = cold.encode(STORY * 30)
    return [text[:length] for length in LENGTHS]


@pytest.fixture(scope="module")
def wanted(cold: LLM, prompts: list[list[int]]) -> list[Completion]:
    return cold.generate(prompts, SAMPLED)


def test_prompts_around_the_boundaries_of_a_cached_text_get_the_bits_of_a_cold_run(
    folder: Path, prompts: list[list[int]], wanted: list[Completion]
) -> None:
    with LLM(folder, max_model_len=512, max_num_seqs=4) as llm:
        llm.generate([prompts[-1][:256], prompts[-1]], replace(SAMPLED, max_tokens=1))
        found = [done for prompt in prompts for done in llm.generate([prompt], SAMPLED)]
    assert [bits(done) for done in found] == [bits(done) for done in wanted]
    cached = [done.usage.cached_tokens for done in found]
    assert cached == [(length - 1) // 128 * 128 for length in LENGTHS]


def test_prompts_without_a_cached_state_are_fed_again_and_get_the_bits_of_a_cold_run(
    folder: Path, prompts: list[list[int]], wanted: list[Completion]
) -> None:
    with LLM(folder, max_model_len=512, max_num_seqs=4, snapshot_slots=0) as llm:
        llm.generate([prompts[-1]], SAMPLED)
        found = llm.generate(prompts[3:], SAMPLED)
    assert [bits(done) for done in found] == [bits(done) for done in wanted[3:]]
    # The model has so many layers that all of the prefix is fed again.
    assert all(done.usage.replayed_tokens == done.usage.cached_tokens > 0 for done in found)
