"""How does the text of a body become token ids, and how do token ids become text?

Whatever a body spells is ordinary text: only this room places control tokens, the beginning of the
sequence and the three that mark a gap. Their ids are read from the tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepinfer_core.engine.tokenizer import Tokenizer, read_tokenizer
from deepinfer_core.errors import RequestError
from deepinfer_core.interfaces.protocol import MOST_CHARACTERS_PER_TOKEN, ServiceView

__all__ = ["PlainText", "TextReader"]

_BEGIN = "<｜begin▁of▁sentence｜>"
_GAP = ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>")
"""Before the text, where the gap is, and behind the text, as DeepSeek's tokenizers spell them."""


class PlainText:
    """Reads and writes texts of one tokenizer.

    Args:
        source: text of its ``tokenizer.json``.
        max_model_len: tokens of the longest sequence.
    """

    def __init__(self, source: str, max_model_len: int) -> None:
        self.tokenizer: Tokenizer = read_tokenizer(source)
        self._most_characters = MOST_CHARACTERS_PER_TOKEN * max_model_len

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, without a beginning.

        Raises:
            RequestError: it is too long, or holds what is no character.
        """
        if len(text) > self._most_characters:
            raise RequestError(
                f"the text has {len(text)} characters",
                hint=f"at most {self._most_characters} are read for this model: "
                f"{MOST_CHARACTERS_PER_TOKEN} for each token of its longest sequence",
            )
        return self.tokenizer.encode(text)

    def prompt(self, prompt: str | tuple[int, ...], suffix: str = "") -> tuple[int, ...]:
        """Token ids of a prompt; those of a text begin with the beginning of the sequence.

        Args:
            prompt: a text, or token ids, which stay as they are.
            suffix: text behind a gap that is to be filled; empty: no gap.

        Raises:
            RequestError: a text is too long, or the tokenizer lacks a control token that is needed.
        """
        ids = self.encode(prompt) if isinstance(prompt, str) else prompt
        if suffix:
            begin, gap, end = [self._control(spelling, _GAP_HINT) for spelling in _GAP]
            ids = [begin, *ids, gap, *self.encode(suffix), end]
        start = [self._control(_BEGIN, _BEGIN_HINT)] if isinstance(prompt, str) else []
        return (*start, *ids)

    def echo(self, prompt: str | tuple[int, ...]) -> str:
        """A prompt as text, without control tokens."""
        return prompt if isinstance(prompt, str) else self.tokenizer.decode(prompt)

    def text(self, token_ids: Sequence[int]) -> str:
        """Text of tokens, control tokens by their spelling.

        Raises:
            RequestError: the tokenizer does not know an id.
        """
        unknown = [token for token in token_ids if token not in self.tokenizer.pieces]
        if unknown:
            raise RequestError(
                f"tokens has the id {unknown[0]}", hint="the model has no such token"
            )
        return self.tokenizer.decode(tuple(token_ids), skip_control=False)

    def _control(self, spelling: str, hint: str) -> int:
        token = self.tokenizer.control_id(spelling)
        if token is None:
            raise RequestError(f"the model's tokenizer has no {spelling}", hint=hint)
        return token


_GAP_HINT = "this model fills no gaps: leave suffix out"
_BEGIN_HINT = "give token ids in place of a text"


class TextReader:
    """Opens the tokenizer of the engine when it is first asked for.

    Args:
        service: has the engine, and threads for reading.
    """

    def __init__(self, service: ServiceView) -> None:
        self._service = service
        self._opened: tuple[str, PlainText] | None = None

    async def open(self) -> PlainText:
        """What reads texts for the engine that is loaded now.

        Raises:
            EngineUnavailable: none is.
            RequestError: it has no tokenizer.
        """
        facts = self._service.engine.facts
        source = facts.tokenizer_json
        if source is None:
            raise RequestError("this model has no tokenizer", hint="only token ids can be used")
        if self._opened is None or self._opened[0] is not source:
            text = await self._service.in_threads(PlainText, source, facts.max_model_len)
            self._opened = (source, text)
        return self._opened[1]
