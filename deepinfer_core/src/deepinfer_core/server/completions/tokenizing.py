"""Which tokens does a text or a conversation have, and which text do tokens have?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepinfer_core.engine.checks import check_token_ids
from deepinfer_core.errors import ConfigError, RequestError, WeightsError
from deepinfer_core.interfaces.protocol import HttpAnswer, HttpCall, JsonAnswer, ServiceView
from deepinfer_core.server.completions.plain_text import PlainText, TextReader
from deepinfer_core.server.dialect import json_bytes

__all__ = ["Tokenizing"]


class Tokenizing:
    """Answers ``POST /tokenize`` and ``POST /detokenize``.

    Args:
        service: to answer with.
        texts: reads and writes them.
    """

    def __init__(self, service: ServiceView, texts: TextReader) -> None:
        self._service = service
        self._texts = texts

    async def tokenize(self, call: HttpCall) -> HttpAnswer:
        """Tokens of ``prompt``, without a beginning; or of ``messages``, ready for the answer.

        Raises:
            RequestError: neither is given, or it cannot be encoded.
        """
        call.notes.protocol = "tokenize"
        text = await self._texts.open()
        ids: list[int] = await self._service.in_threads(_tokens, text, call.body)
        longest = self._service.engine.facts.max_model_len
        content = {"count": len(ids), "max_model_len": longest, "tokens": ids}
        call.notes.prompt_tokens = len(ids)
        return JsonAnswer(content=json_bytes(content))

    async def detokenize(self, call: HttpCall) -> HttpAnswer:
        """Text of ``tokens``; control tokens by their spelling.

        Raises:
            RequestError: they are missing, or no tokens of the model.
        """
        call.notes.protocol = "detokenize"
        if call.body.get("tokens") is None:
            raise RequestError("tokens are missing", hint='give {"tokens": [1, 2, 3]}')
        text = await self._texts.open()
        ids = check_token_ids("tokens", call.body["tokens"])
        prompt = await self._service.in_threads(text.text, ids)
        return JsonAnswer(content=json_bytes({"prompt": prompt}))


def _tokens(text: PlainText, body: Mapping[str, Any]) -> list[int]:
    prompt, messages = body.get("prompt"), body.get("messages")
    if (prompt is None) is (messages is None):
        raise RequestError(
            f"prompt and messages are {'missing' if prompt is None else 'given together'}",
            hint='give {"prompt": "text"} or {"messages": [...]}',
        )
    if messages is not None:
        try:
            return text.conversations.encode_body(body)
        except (ConfigError, WeightsError) as error:
            raise RequestError(error.message, hint=error.hint) from error
    if not isinstance(prompt, str):
        raise RequestError("prompt is no text", hint='give {"prompt": "text"}')
    return text.tokenizer.encode(prompt)
