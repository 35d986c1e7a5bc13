"""What does a stream of server-sent events say about an answer?

Read are the chunks of the published OpenAI interfaces, ``/chat/completions`` and ``/completions``,
and in them only what is measured. Other fields, comments and named events pass unread.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["Chunk", "EventSplitter", "Usage", "decode"]

_END_OF_LINE = b"\n"


class _CachedTokens(msgspec.Struct):
    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """Tokens of one answer, as the service counted them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _CachedTokens | None = None
    prompt_cache_hit_tokens: int | None = None

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that were found in a cache; 0 if the service does not say."""
        details = self.prompt_tokens_details
        return self.prompt_cache_hit_tokens or (details and details.cached_tokens) or 0


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: Any = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class Chunk(msgspec.Struct):
    """One event's data."""

    choices: list[_Choice] = []
    usage: Usage | None = None
    error: Any = None

    @property
    def content(self) -> str:
        """Text of the answer itself, without reasoning."""
        return "".join(
            choice.text or (choice.delta.content if choice.delta else None) or ""
            for choice in self.choices
        )

    @property
    def has_tokens(self) -> bool:
        """Whether it brings something that the model wrote: text, reasoning or a tool call."""
        return any(
            choice.text
            or (
                choice.delta is not None
                and (
                    choice.delta.content
                    or choice.delta.reasoning_content
                    or choice.delta.reasoning
                    or choice.delta.tool_calls
                )
            )
            for choice in self.choices
        )

    @property
    def is_last(self) -> bool:
        """Whether it says why the answer ended."""
        return any(choice.finish_reason for choice in self.choices)


decode = msgspec.json.Decoder(Chunk).decode
"""The data of one event to a ``Chunk``; raises ``msgspec.DecodeError``."""


class EventSplitter:
    """Cuts bytes into events, wherever they were cut on their way."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of the events that are whole now; an event without data is left out."""
        text = self._rest + piece
        if b"\r" in text:
            text = text.replace(b"\r\n", _END_OF_LINE)
        *events, self._rest = text.split(b"\n\n")
        return [data for event in events if (data := _data(event))]


def _data(event: bytes) -> bytes:
    if event.startswith(b"data: ") and _END_OF_LINE not in event:
        return event[6:]
    lines = [line[5:] for line in event.split(_END_OF_LINE) if line.startswith(b"data:")]
    return _END_OF_LINE.join(line.removeprefix(b" ") for line in lines)
