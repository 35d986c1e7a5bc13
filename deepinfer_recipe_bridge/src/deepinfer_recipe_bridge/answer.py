"""How do the tokens of an answer become the events of a protocol?

deepseek-recipe reads the tokens and makes the events. It gets one token at a time, since of more it
would lose all when the last one ends within a character; and it never gets a token that ends an
answer, which it would take for text.
"""

from __future__ import annotations

from typing import Any

import deepseek_recipe as recipe
from deepinfer_core.engine.outputs import FinishReason, TokenLogprob
from deepinfer_core.errors import EngineUnavailable
from deepinfer_core.interfaces.async_engine import Started, Tokens

from deepinfer_recipe_bridge.codec import Codec
from deepinfer_recipe_bridge.reading import Reading

__all__ = ["Answer", "Event"]

Event = Any
"""One event of the recipe, of the class of its protocol."""

_REASONS = {
    "stop": recipe.InferenceFinishReason.Stop,
    "length": recipe.InferenceFinishReason.Length,
}
_LEAST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON has not."""


class Answer:
    """One answer on its way.

    Args:
        reading: the request; its generator is used up.
        codec: of the model.
        response_id: id of the response.
        fingerprint: of the system that answers.

    Attributes:
        completion_tokens: that were passed on.
        reasoning_tokens: those of them that stand before the answer.
    """

    def __init__(self, reading: Reading, codec: Codec, response_id: str, fingerprint: str) -> None:
        self._codec = codec
        self._fingerprint = fingerprint
        self._processor = recipe.StreamProcessor(
            reading.generator(response_id), reading.parsing, codec.tokenizer
        )
        stage = reading.parsing.thinking_initial_stage
        self._is_reasoning = stage is not None and stage.starts_in_reasoning()
        self.completion_tokens = 0
        self.reasoning_tokens = 0

    @property
    def is_complete(self) -> bool:
        """Whether the answer has ended, because of a stop string or of ``end``."""
        return self._processor.finished

    def begin(self, started: Started) -> list[Event]:
        """Opening events; they say how many tokens of the prompt were cached."""
        usage = recipe.PromptUsage(
            prompt_tokens=started.prompt_tokens, prompt_cache_hit_tokens=started.cached_tokens
        )
        return self._processor.push(
            recipe.InferenceChunk.ready(prompt_usage=usage, system_fingerprint=self._fingerprint)
        )

    def take(self, tokens: Tokens) -> list[Event]:
        """Events of what one step added; tokens behind a stop string are left out."""
        events: list[Event] = []
        for place, token in enumerate(tokens.token_ids):
            if token in self._codec.silent_ids:
                continue
            logprobs = [_pair(tokens.logprobs[place])] if tokens.logprobs else None
            events += self._processor.push(recipe.InferenceChunk.tokens([token], logprobs))
            self._count(token)
            if self._processor.finished:
                break
        return events

    def end(self, reason: FinishReason) -> list[Event]:
        """Closing events.

        Raises:
            EngineUnavailable: somebody ended the request; the answer is not whole.
        """
        if reason not in _REASONS:
            self._processor.close()
            raise EngineUnavailable("the request was ended before its answer was whole")
        return self._processor.push(recipe.InferenceChunk.finish(_REASONS[reason]))

    def _count(self, token: int) -> None:
        self.completion_tokens += 1
        if token in (self._codec.think_end_id, self._codec.dsml_id):
            self._is_reasoning = False
        self.reasoning_tokens += self._is_reasoning


def _pair(one: TokenLogprob) -> tuple[float, list[tuple[int, float]]]:
    return (
        max(one.logprob, _LEAST_LOGPROB),
        [(token, max(logprob, _LEAST_LOGPROB)) for token, logprob in one.top],
    )
