"""How does a turn of a script become the body of a request?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from deepinfer_core.bench.serve.scripts import Message

__all__ = ["Bodies", "Endpoint"]

Endpoint = Literal["chat", "completions"]

_PATHS: Mapping[Endpoint, str] = {"chat": "/chat/completions", "completions": "/completions"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bodies:
    """What all requests have in common.

    Attributes:
        endpoint: which interface.
        model: name of the model.
        salt_field: field of the body that keeps caches apart; empty: the first message's text
            begins with the salt instead, which every service understands.
        fields: more fields of every body.
    """

    endpoint: Endpoint
    model: str
    salt_field: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Of the endpoint, behind the target's own path."""
        return _PATHS[self.endpoint]

    def body(
        self,
        messages: Sequence[Message],
        fields: Mapping[str, Any],
        *,
        output_tokens: int,
        salt: str,
    ) -> dict[str, Any]:
        """The body of one request.

        Args:
            messages: of the conversation; for completions their texts, blank lines between them.
            fields: of the script.
            output_tokens: most tokens of the answer.
            salt: requests of different salts share no cached prefix; empty: none is wanted.
        """
        if salt and not self.salt_field:
            messages = [_salted(messages[0], salt), *messages[1:]]
        said: dict[str, Any] = {"messages": list(messages)}
        if self.endpoint == "completions":
            said = {"prompt": "\n\n".join(str(message["content"]) for message in messages)}
        apart = {self.salt_field: salt} if salt and self.salt_field else {}
        common = {
            "model": self.model,
            "max_tokens": output_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return {**common, **said, **fields, **apart, **self.fields}


def _salted(message: Message, salt: str) -> Message:
    return {**message, "content": f"[{salt}] {message.get('content') or ''}"}
