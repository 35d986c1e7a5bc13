"""How do the tokens of an answer become the events of a protocol?

deepseek-recipe reads the tokens and makes the events. It gets one token at a time, since of more it
would lose all when the last one ends within a character; and it never gets a token that ends an
answer, which it would take for text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import deepseek_recipe as recipe
from deepinfer_core.engine.outputs import TokenLogprob
from deepinfer_core.errors import EngineUnavailable
from deepinfer_core.interfaces.async_engine import Finished, Started

from deepinfer_recipe_bridge.codec import Codec
from deepinfer_recipe_bridge.reading import Reading

__all__ = ["Answer", "Event"]

Event = Any
"""One event of the recipe, of the class of its protocol."""

_REASONS = {
    "stop": recipe.InferenceFinishReason.Stop,
    "length": recipe.InferenceFinishReason.Length,
    # No protocol has a word for it; a cut answer is neither whole nor asked for again.
    "abort": recipe.InferenceFinishReason.Length,
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
        has_stops: a stop string may end it.
        plain: texts of tokens that only make its text longer, wherever in a text it is.
        is_begun: the opening events were made.
        is_complete: the answer has ended, because of a stop string or of ``end``.
        finish_reason: why; empty until then.
        completion_tokens: that were passed on.
        reasoning_tokens: those of them that stand before the answer.
    """

    def __init__(self, reading: Reading, codec: Codec, response_id: str, fingerprint: str) -> None:
        self._fingerprint = fingerprint
        self._silent = codec.silent_ids
        self._turning = frozenset((codec.think_end_id, codec.dsml_id))
        self._processor = recipe.StreamProcessor(
            reading.generator(response_id), reading.parsing, codec.tokenizer
        )
        self._push = self._processor.push
        self.has_stops = bool(reading.parsing.stop_sequences)
        # Of JSON the recipe leaves out what stands around it.
        self.plain = {} if reading.parsing.parse_json_output else codec.plain
        stage = reading.parsing.thinking_initial_stage
        self._is_reasoning = stage is not None and stage.starts_in_reasoning()
        self.is_begun = self.is_complete = False
        self.finish_reason = ""
        self.completion_tokens = 0
        self.reasoning_tokens = 0

    def begin(self, started: Started) -> list[Event]:
        """Opening events; they say how many tokens of the prompt were cached."""
        self.is_begun = True
        usage = recipe.PromptUsage(
            prompt_tokens=started.prompt_tokens, prompt_cache_hit_tokens=started.cached_tokens
        )
        return self._push(
            recipe.InferenceChunk.ready(prompt_usage=usage, system_fingerprint=self._fingerprint)
        )

    def take(self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprob] = ()) -> list[Event]:
        """Events of what one step added; tokens behind a stop string are left out."""
        events: list[Event] = []
        for place, token in enumerate(token_ids):
            if token in self._silent:
                continue
            # Of one token, and that is the rule, the list is the recipe's own.
            found = self._push(_chunk([token], [_pair(logprobs[place])] if logprobs else None))
            events = events + found if events else found
            self.completion_tokens += 1
            if self._is_reasoning:
                self._is_reasoning = token not in self._turning
                self.reasoning_tokens += self._is_reasoning
            if self.has_stops and self._processor.finished:
                self.is_complete, self.finish_reason = True, "stop"
                break
        return events

    def lengthen(self, token_ids: list[int]) -> list[Event]:
        """Events of some of ``plain`` behind one that made a text longer: they are one."""
        self.completion_tokens += len(token_ids)
        if self._is_reasoning:
            self.reasoning_tokens += len(token_ids)
        return self._push(_chunk(token_ids))

    def end(self, end: Finished) -> list[Event]:
        """Closing events.

        Raises:
            EngineUnavailable: the service ended the request; it may be asked again.
        """
        self.is_complete, self.finish_reason = True, end.reason
        if end.reason not in _REASONS or end.aborted_by not in (None, "operator"):
            self._processor.close()
            raise EngineUnavailable(
                "the request was ended before its answer was whole", hint="ask again later"
            )
        return self._push(recipe.InferenceChunk.finish(_REASONS[end.reason]))


_chunk = recipe.InferenceChunk.tokens


def _pair(one: TokenLogprob) -> tuple[float, list[tuple[int, float]]]:
    return (
        max(one.logprob, _LEAST_LOGPROB),
        [(token, max(logprob, _LEAST_LOGPROB)) for token, logprob in one.top],
    )
