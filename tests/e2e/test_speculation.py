"""The shipped checkpoint with drafts: the tokens of decoding without, at real sizes, recorded steps
and all.

``benchmarks/speculation_match.py`` does the same for 2,000 prompts.
"""

from typing import Any

import pytest
from deepinfer_core.config.checkpoints import shipped_checkpoints
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.outputs import Completion
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.testing.speculation import matched_prompts, with_random_budgets

pytestmark = pytest.mark.skipif(
    not shipped_checkpoints(), reason="pip install -e plugins/deepinfer_tiny runs these"
)

SIZES = {"max_model_len": 512, "max_num_seqs": 8, "max_num_batched_tokens": 128}
DRAFTS: dict[str, Any] = {"components": {"drafter": {"use": "core.ngram"}}}


@pytest.fixture(scope="module")
def asked() -> tuple[list[str], list[SamplingParams]]:
    return matched_prompts(40, seed=1, max_tokens=24)


@pytest.fixture(scope="module")
def plain(asked: tuple[list[str], list[SamplingParams]]) -> list[Completion]:
    with LLM(**SIZES) as llm:
        return llm.generate(*asked)


@pytest.mark.parametrize("asynchronous", [True, False])
def test_drafts_change_no_token_and_no_log_probability(
    asked: tuple[list[str], list[SamplingParams]],
    plain: list[Completion],
    asynchronous: bool,
) -> None:
    with LLM(**SIZES, **DRAFTS, asynchronous=asynchronous) as llm:
        budget = with_random_budgets(llm, seed=2)
        found = llm.generate(*asked)
        llm.engine.check_integrity()
    for got, want in zip(found, plain, strict=True):
        assert (got.token_ids, got.text) == (want.token_ids, want.text)
        assert (got.logprobs, got.finish_reason) == (want.logprobs, want.finish_reason)
    assert budget.accepted > 20
