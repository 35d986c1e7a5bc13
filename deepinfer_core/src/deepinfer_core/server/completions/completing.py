"""How is a text completion answered, whole or in events?"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from deepinfer_core.interfaces.async_engine import GenerateRequest
from deepinfer_core.interfaces.protocol import (
    EventAnswer,
    HttpAnswer,
    HttpCall,
    JsonAnswer,
    ServiceView,
)
from deepinfer_core.server.completions.answers import usage_of
from deepinfer_core.server.completions.bodies import read_completion
from deepinfer_core.server.completions.calls import CallsInWork, CompletionCall, prepare_call
from deepinfer_core.server.completions.cards import served_name
from deepinfer_core.server.completions.choices import run_choices
from deepinfer_core.server.completions.event_stream import CompletionStream
from deepinfer_core.server.completions.plain_text import PlainText, TextReader
from deepinfer_core.server.dialect import json_bytes

__all__ = ["Completing"]


class Completing:
    """Answers ``POST /v1/completions``.

    Args:
        service: to answer with.
        texts: reads prompts.
        in_work: is told which requests a call has.
    """

    def __init__(self, service: ServiceView, texts: TextReader, in_work: CallsInWork) -> None:
        self._service = service
        self._texts = texts
        self._in_work = in_work

    async def handle(self, call: HttpCall) -> HttpAnswer:
        """Answer a call; raises like ``read_completion``, ``prepare_call`` and the engine."""
        since_s, notes = time.monotonic(), call.notes
        text = await self._texts.open()
        prepared: CompletionCall = await self._service.in_threads(
            self._prepared, call, text, since_s
        )
        call.claim(len(prepared.requests))
        ask = prepared.ask
        head = {
            "id": f"cmpl-{call.request_id}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": notes.model,
        }
        if ask.stream:
            stream = CompletionStream(prepared, head)
            return EventAnswer(events=self._events(prepared, stream), begin=stream.begin)
        async with aclosing(self._places(prepared, prepared.requests)) as steps:
            async for _ in steps:
                pass
        choices = [choice.part() for choice in prepared.choices]
        usage = usage_of(prepared.choices, ask.samples, notes)
        return JsonAnswer(content=json_bytes({**head, "choices": choices, "usage": usage}))

    def _prepared(self, call: HttpCall, text: PlainText, since_s: float) -> CompletionCall:
        """Read and encode; runs in a thread, as a body may be large."""
        ask, notes = read_completion(call.body), call.notes
        notes.model = served_name(self._service.model_names, ask.model)
        grammar = ask.params.grammar_request
        notes.stream, notes.constraint = ask.stream, "" if grammar is None else grammar.kind
        return prepare_call(call, ask, text, self._service.engine.facts.max_model_len, since_s)

    async def _events(
        self, prepared: CompletionCall, stream: CompletionStream
    ) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._places(prepared, stream.requests)) as steps:
            async for places in steps:
                if data := stream.written(places):
                    yield data
        yield stream.end()

    async def _places(
        self, prepared: CompletionCall, requests: Sequence[GenerateRequest]
    ) -> AsyncGenerator[list[int], None]:
        """Run a call; yields of which choices something new is known."""
        running = run_choices(self._service.engine, requests)
        with self._in_work.keep(prepared):
            async with aclosing(running) as steps:
                async for came in steps:
                    for place, item in came:
                        prepared.take(place, item)
                    yield list(dict.fromkeys(place for place, _ in came))
