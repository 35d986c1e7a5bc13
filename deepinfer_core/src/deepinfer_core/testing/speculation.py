"""On which prompts is speculation compared with decoding without drafts, and with which budgets?"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.testing.draft_budgets import RandomBudget

if TYPE_CHECKING:
    from deepinfer_core.engine.llm import LLM

__all__ = ["matched_prompts", "with_random_budgets"]

_BEGINNINGS = (
    "Once upon a time there was a {0}. The {0} liked the {1}. One day the {0}",
    "The {0} saw the {1}. The {1} saw the {0}. The {0}",
    "{0}, {1}, {0}, {1}, {0}, {1},",
    "A {0} is a {0}. A {1} is a {1}. A",
    "Say it again: the {0} and the {1} went home. Say it again: the",
    "Lily had a {0} and a {1}. She played with the {0} and",
)
_WORDS = ("dog", "cat", "red ball", "little bird", "tree", "boat", "big house", "frog", "mouse")


def matched_prompts(
    count: int, *, seed: int, max_tokens: int
) -> tuple[list[str], list[SamplingParams]]:
    """Texts that repeat themselves more or less, and settings that change draws.

    Args:
        count: of prompts.
        seed: of all choices.
        max_tokens: of each answer, at most.
    """
    draw = random.Random(seed)
    prompts = [draw.choice(_BEGINNINGS).format(*draw.sample(_WORDS, 2)) for _ in range(count)]
    return prompts, [_params(draw, max_tokens) for _ in range(count)]


def with_random_budgets(
    llm: LLM, seed: int, shares: tuple[float, ...] | None = None
) -> RandomBudget:
    """Let an engine that drafts verify any number of drafts in any step; see ``RandomBudget``."""
    drafting = llm.engine.batch.drafting
    assert drafting is not None
    budget = RandomBudget(seed, shares)
    drafting.use(budget)
    return budget


def _params(draw: random.Random, max_tokens: int) -> SamplingParams:
    fields: dict[str, Any] = {
        "max_tokens": draw.randint(max_tokens // 2, max_tokens),
        "seed": draw.getrandbits(64),
        "temperature": draw.choice([0, 0, 0.3, 0.7, 1.0]),
        "top_p": draw.choice([1.0, 0.9]),
        "top_k": draw.choice([-1, 20]),
    }
    kind = draw.random()
    if kind < 0.1:
        fields |= {"repetition_penalty": 1.1, "frequency_penalty": 0.1}
    elif kind < 0.2:
        fields["logprobs"] = 2
    elif kind < 0.3:
        fields |= {"stop": ["the"], "min_tokens": 4}
    elif kind < 0.4:
        fields |= {"logit_bias": {5: 2.0}, "min_p": 0.02}
    return SamplingParams(**fields)
