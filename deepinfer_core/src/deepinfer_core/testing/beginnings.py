"""How does a test ask for a beginning of a known text, and what must come back?"""

from __future__ import annotations

import random

from deepinfer_core.cache.recovery import Resume
from deepinfer_core.engine.request_options import RequestOptions
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.cold_text import ColdText
from deepinfer_core.testing.small_engines import Answer, Ask

__all__ = ["FORCED", "LONGEST", "ask", "ask_forced", "check_answer", "check_resumed", "words"]

LONGEST = 640
"""Tokens of the longest prompt of a sweep."""

FORCED = 3
"""Tokens that a forced answer takes from the text, so that rows behind the prompt are known too."""


def words(name: str, count: int) -> list[int]:
    """Ordinary tokens of the small vocabularies; the same for the same name."""
    draw = random.Random(name)
    return [9 + draw.randrange(256) for _ in range(count)]


def ask(cold: ColdText, length: int) -> Ask:
    """A beginning of the text; its answer is the likeliest token, a drawn one or the text's own."""
    if length % 3 == 2:
        return ask_forced(cold, length)
    temperature = length % 3
    params = SamplingParams(temperature=temperature, seed=length, max_tokens=1)
    return Ask(prompt=cold.tokens[:length], params=params)


def ask_forced(
    cold: ColdText, length: int, count: int = FORCED, *, samples: int = 1, salt: str = ""
) -> Ask:
    """A beginning of the text whose answer is what follows in the text."""
    following = cold.tokens[length : length + count]
    params = SamplingParams(golden_token_ids=following, max_tokens=count, n=samples)
    options = RequestOptions(cache_salt=salt)
    return Ask(prompt=cold.tokens[:length], params=params, options=options)


def check_answer(cold: ColdText, asked: Ask, answer: Answer) -> None:
    """Compare tokens, logits and cache rows with the cold text's.

    Raises:
        AssertionError: one differs.
    """
    length, params, drawn = len(asked.prompt), asked.params, answer.done.token_ids
    if params.golden_ids:
        assert drawn == cold.tokens[length : length + params.max_tokens]
    else:
        token = cold.draw(length, temperature=params.temperature, seed=params.seed or 0)
        assert drawn == (token,)
    assert_same_bits(answer.logits_RV, cold.logits_TV[length - 1 : length - 1 + len(drawn)])
    assert answer.kept
    cold.check_kept(answer.kept)


def check_resumed(answer: Answer, resume: Resume) -> None:
    """Compare what was reused and fed again with what it should be.

    Raises:
        AssertionError: it was more or less.
    """
    usage, first = answer.done.usage, answer.steps[0]
    assert usage.cached_tokens == resume.cached_tokens
    assert usage.replayed_tokens == resume.replayed_tokens
    assert first.start == resume.start
    assert first.valid_start == resume.valid_start
    assert first.cached_end == resume.cached_tokens
