"""Which tokens does a text or a conversation have, and which text do tokens have?"""

from __future__ import annotations

from collections.abc import Sequence

from deepinfer_core.engine.checks import check_token_ids
from deepinfer_core.errors import RequestError
from deepinfer_core.interfaces.protocol import HttpAnswer, HttpCall, JsonAnswer, ServiceView
from deepinfer_core.server.completions.cards import served_name
from deepinfer_core.server.completions.plain_text import PlainText, TextReader
from deepinfer_core.server.dialect import json_bytes

__all__ = ["Tokenizing"]

_PART_TOKENS = 1 << 16


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
        ids = await self._tokens(call)
        longest = self._service.engine.facts.max_model_len
        call.notes.prompt_tokens = len(ids)
        return JsonAnswer(content=await self._service.in_threads(_answer, ids, longest))

    async def _tokens(self, call: HttpCall) -> Sequence[int]:
        prompt, messages = call.body.get("prompt"), call.body.get("messages")
        if (prompt is None) is (messages is None):
            raise RequestError(
                f"prompt and messages are {'missing' if prompt is None else 'given together'}",
                hint='give {"prompt": "text"} or {"messages": [...]}',
            )
        if messages is not None:
            return await self._conversation(call)
        if not isinstance(prompt, str):
            raise RequestError("prompt is no text", hint='give {"prompt": "text"}')
        call.notes.model = served_name(self._service.model_names, call.body.get("model"))
        text = await self._texts.open()
        ids: list[int] = await self._service.in_threads(text.encode, prompt)
        return ids

    async def _conversation(self, call: HttpCall) -> Sequence[int]:
        found = await self._service.conversation_tokens(call)
        if found is None:
            raise RequestError(
                "no protocol of this service answers conversations",
                hint="give a prompt; deepinfer-recipe-bridge has bridge.chat, which answers them",
            )
        return found

    async def detokenize(self, call: HttpCall) -> HttpAnswer:
        """Text of ``tokens``; control tokens by their spelling.

        Raises:
            RequestError: they are missing, or no tokens of the model.
        """
        if call.body.get("tokens") is None:
            raise RequestError("tokens are missing", hint='give {"tokens": [1, 2, 3]}')
        text = await self._texts.open()
        return JsonAnswer(content=await self._service.in_threads(_text, text, call.body["tokens"]))


def _answer(ids: Sequence[int], longest: int) -> bytes:
    """Written in parts: the interpreter's lock is let go between them."""
    parts = [ids[at : at + _PART_TOKENS] for at in range(0, len(ids), _PART_TOKENS)]
    tokens = b",".join([json_bytes(part)[1:-1] for part in parts])
    return b'{"count":%d,"max_model_len":%d,"tokens":[%b]}' % (len(ids), longest, tokens)


def _text(text: PlainText, tokens: object) -> bytes:
    return json_bytes({"prompt": text.text(check_token_ids("tokens", tokens))})
