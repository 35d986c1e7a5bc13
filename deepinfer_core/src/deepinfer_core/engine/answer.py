"""Which part of a streamed chat answer is reasoning, and which is the answer?

The border is the control token behind the reasoning, never its spelling.
"""

from __future__ import annotations

from deepinfer_core.engine.conversation import THINK_END
from deepinfer_core.engine.outputs import Delta
from deepinfer_core.engine.text import TextStream
from deepinfer_core.engine.tokenizer import Tokenizer

__all__ = ["AnswerStream"]


class AnswerStream:
    """Splits the deltas of one completion.

    Args:
        tokenizer: of the checkpoint.
        is_thinking: the prompt asked for reasoning, so the completion begins with it.

    Attributes:
        reasoning: so far.
        answer: so far; without line feeds at its beginning.
    """

    def __init__(self, tokenizer: Tokenizer, *, is_thinking: bool) -> None:
        self.reasoning = ""
        self.answer = ""
        self._tokenizer = tokenizer
        self._is_thinking = is_thinking
        self._border = tokenizer.control_id(THINK_END)
        self._thoughts = TextStream()
        self._thoughts_left = 0
        """Characters of reasoning that are still to come in the text of the deltas."""
        self._new_reasoning = ""
        self._new_answer = ""

    def push(self, delta: Delta) -> None:
        """Take in what one step gave; it may hold the end of the reasoning and more behind it."""
        if self._is_thinking:
            for token in delta.token_ids:
                if token == self._border:
                    self._is_thinking = False
                    self._thoughts.end()
                    break
                self._thoughts.push(self._tokenizer.piece(token, skip_control=True))
            thoughts = self._thoughts.take()
            self._think(thoughts)
            self._thoughts_left += len(thoughts)
        # The text of the deltas may lag behind their tokens.
        come = min(self._thoughts_left, len(delta.text))
        self._thoughts_left -= come
        if not self._is_thinking:
            self._say(delta.text[come:])

    def take(self) -> tuple[str, str]:
        """New reasoning and new answer since the last call."""
        found = self._new_reasoning, self._new_answer
        self._new_reasoning = self._new_answer = ""
        return found

    def _think(self, text: str) -> None:
        self.reasoning += text
        self._new_reasoning += text

    def _say(self, text: str) -> None:
        if not self.answer:
            text = text.lstrip("\n")
        self.answer += text
        self._new_answer += text
