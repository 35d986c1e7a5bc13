"""How is a call answered, whatever protocol it speaks?

Prompt, sampling and grammar are worked out in a thread; then the engine's items become events. What
one item of the engine adds is written at once. A whole response is put together from the same
events, so that both say the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
import time
from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar

from deepinfer_core.errors import DeadlineExceeded, RequestError, UnknownModel
from deepinfer_core.interfaces.async_engine import (
    EngineFacts,
    Finished,
    GenerateRequest,
    Item,
    Started,
    Taker,
    Tokens,
)
from deepinfer_core.interfaces.protocol import (
    EventAnswer,
    HttpAnswer,
    HttpCall,
    JsonAnswer,
    Protocol,
    ServiceView,
)

from deepinfer_recipe_bridge.answer import Answer, Event
from deepinfer_recipe_bridge.codec import codec_of
from deepinfer_recipe_bridge.dialects import event_bytes
from deepinfer_recipe_bridge.errors import UnsupportedGrammar
from deepinfer_recipe_bridge.event_stream import EventStream
from deepinfer_recipe_bridge.event_writer import EventWriter
from deepinfer_recipe_bridge.json_text import json_data, json_text
from deepinfer_recipe_bridge.options import ProtocolOptions
from deepinfer_recipe_bridge.prepared import Prepared
from deepinfer_recipe_bridge.preparing import image_count, prompt_ids, sampling_params
from deepinfer_recipe_bridge.reading import Reading, check_tool_count
from deepinfer_recipe_bridge.users import cache_salt

__all__ = ["Surface"]


class Surface(Protocol):
    """What the three protocols have in common.

    Args:
        options: of the protocol.

    Attributes:
        id_prefix: of the ids of its responses.
        response: the recipe's class of whole responses.
        before_text: what stands before the text that an event of a stream adds to one.
    """

    id_prefix: ClassVar[str]
    response: ClassVar[Any]
    before_text: ClassVar[re.Pattern[bytes]]

    def __init__(self, options: ProtocolOptions) -> None:
        self.options = options

    @abstractmethod
    def read(self, call: HttpCall, model_names: tuple[str, ...]) -> Reading:
        """Read a body.

        Raises:
            RequestError: it is refused.
        """

    def writer(self, prepared: Prepared) -> EventWriter:
        """What writes the events of one stream."""
        return EventWriter(self.response.sse_event_name, self.before_text)

    def completed(self, response: dict[str, Any]) -> None:
        """Add what the official types of a whole response require."""

    def response_text(self, prepared: Prepared, whole: str) -> str:
        """JSON text of a whole response as it is sent."""
        if not self.options.compat:
            return whole
        response = json_data(whole)
        self.completed(response)
        return json_text(response)

    def stream_ended(self, prepared: Prepared) -> None:
        """A stream is over, whatever ended it."""

    async def answered(self, service: ServiceView, call: HttpCall) -> HttpAnswer:
        """Answer a call that asks for a response."""
        arrived_s = asyncio.get_running_loop().time()
        prepared: Prepared = await service.in_threads(self.prepared, service, call, arrived_s)
        call.notes.stream = prepared.reading.request.stream
        if call.notes.stream:
            stream = EventStream(prepared, self.writer(prepared))
            events = self._streamed(service, prepared, stream)
            return EventAnswer(events=events, begin=stream.begin)
        return await self._whole(service, prepared)

    def prepared(self, service: ServiceView, call: HttpCall, arrived_s: float) -> Prepared:
        """Work out what the engine is asked for; runs in a thread."""
        facts, reading = service.engine.facts, self.checked(service, call)
        codec = codec_of(facts)
        prompt = prompt_ids(reading, codec, facts.max_model_len)
        params = sampling_params(reading, prompt, codec, facts, self.options.tool_grammar)
        call.notes.constraint = params.grammar_request.kind if params.grammar_request else ""
        response_id = f"{self.id_prefix}{secrets.token_hex(16)}"
        return Prepared(
            call=call,
            reading=reading,
            request=GenerateRequest(
                request_id=call.request_id,
                prompt_token_ids=prompt,
                params=params,
                cache_salt=cache_salt(call.key_label, reading.user),
            ),
            answer=Answer(reading, codec, response_id, _fingerprint(facts)),
            response_id=response_id,
            arrived_s=arrived_s,
        )

    def checked(self, service: ServiceView, call: HttpCall) -> Reading:
        """Read a call's body within the limits of this protocol."""
        check_tool_count(call.body, self.options.max_tools)
        name = call.body.get("model")
        if isinstance(name, str) and name not in service.model_names:
            raise UnknownModel.named(name, service.model_names)
        reading = self.read(call, service.model_names)
        call.notes.model = reading.model
        call.notes.images = image_count(reading.conversation)
        return reading

    async def _whole(self, service: ServiceView, prepared: Prepared) -> JsonAnswer:
        events: list[Event] = []
        async with _asked(service, prepared) as items:
            async for item in items:
                events += self._events(prepared, item)
                if prepared.answer.is_complete:
                    break
        notes = prepared.call.notes
        whole = self.response(
            prepared.response_id,
            prepared.reading.model,
            int(time.time()),
            notes.prompt_tokens,
            notes.cached_tokens,
        )
        for event in events:
            whole.accumulate(event)
        return JsonAnswer(content=self.response_text(prepared, whole.to_json()).encode())

    async def _streamed(
        self, service: ServiceView, prepared: Prepared, stream: EventStream
    ) -> AsyncIterator[bytes]:
        try:
            async with _asked(service, prepared, stream.take) as items:
                try:
                    async for item in items:
                        stream.settle()
                        if data := stream.written(self._events(prepared, item)):
                            yield data
                        if prepared.answer.is_complete:
                            break
                finally:
                    stream.settle()
        finally:
            self.stream_ended(prepared)
        done = self.response.sse_done_data()
        if done is not None:
            yield event_bytes(done)

    def _events(self, prepared: Prepared, item: Item) -> list[Event]:
        """What an item of the engine adds to the answer."""
        if isinstance(item, Tokens):
            if prepared.call.notes.first_token_s is None:
                prepared.note_first_token()
            return prepared.answer.take(item.token_ids, item.logprobs)
        if isinstance(item, Started):
            prepared.note_start(item)
            return prepared.answer.begin(item)
        prepared.call.notes.ended_by = item.aborted_by or ""
        return [*_missed(prepared, item), *prepared.answer.end(item)]


def _missed(prepared: Prepared, end: Finished) -> list[Event]:
    """Opening events of a request that ended while it waited."""
    if prepared.answer.is_begun:
        return []
    prepared.call.notes.prompt_tokens = end.prompt_tokens
    return prepared.answer.begin(Started(end.prompt_tokens, end.cached_tokens))


@asynccontextmanager
async def _asked(
    service: ServiceView, prepared: Prepared, taker: Taker | None = None
) -> AsyncIterator[AsyncIterator[Item]]:
    """The engine's items; the request is over behind this, and a refused grammar is named."""
    request = replace(prepared.request, taker=taker)
    items = service.engine.generate(request)
    try:
        yield items
    except RequestError as error:
        if request.params.grammar_request is None or isinstance(error, DeadlineExceeded):
            raise
        raise UnsupportedGrammar(error.message, hint=error.hint) from error
    finally:
        prepared.note_lengths()
        close = getattr(items, "aclose", None)
        if close is not None:
            await close()


def _fingerprint(facts: EngineFacts) -> str:
    """The same for engines of which the same may be expected."""
    return _digest(facts.model, tuple(facts.components.items()))


@lru_cache(maxsize=2)
def _digest(model: str, components: tuple[tuple[str, str], ...]) -> str:
    text = json.dumps([model, dict(components)], sort_keys=True)
    return f"fp_{hashlib.sha256(text.encode()).hexdigest()[:10]}"
