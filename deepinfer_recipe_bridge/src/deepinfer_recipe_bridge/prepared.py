"""What is known of a call that the engine can be asked to answer?"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from deepinfer_core.interfaces.async_engine import GenerateRequest, Started
from deepinfer_core.interfaces.protocol import HttpCall

from deepinfer_recipe_bridge.answer import Answer
from deepinfer_recipe_bridge.reading import Reading

__all__ = ["Prepared"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A call that the engine can be asked to answer.

    Attributes:
        call: as it came.
        reading: of its body.
        request: for the engine.
        answer: what becomes of it.
        response_id: of the response.
        arrived_s: when the call came, on the event loop's clock.
    """

    call: HttpCall
    reading: Reading
    request: GenerateRequest
    answer: Answer
    response_id: str
    arrived_s: float

    @property
    def waited_s(self) -> float:
        """Since the call came."""
        return asyncio.get_running_loop().time() - self.arrived_s

    def note_start(self, started: Started) -> None:
        """Note what is known when the first row is scheduled."""
        notes = self.call.notes
        notes.prompt_tokens, notes.cached_tokens = started.prompt_tokens, started.cached_tokens
        notes.queue_s = self.waited_s

    def note_first_token(self) -> None:
        """Note what is known when it comes."""
        self.call.notes.first_token_s = self.waited_s

    def note_lengths(self) -> None:
        """Note what became of the answer."""
        notes, answer = self.call.notes, self.answer
        notes.completion_tokens = answer.completion_tokens
        notes.reasoning_tokens = answer.reasoning_tokens
        notes.finish_reason = answer.finish_reason
