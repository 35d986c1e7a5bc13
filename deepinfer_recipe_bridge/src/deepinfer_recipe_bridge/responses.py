"""How is Responses spoken?

A request brings its whole history, unless the operator lets responses be stored; then
``previous_response_id`` stands for the history of a stored one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import deepseek_recipe as recipe
from deepinfer_core.errors import NotFound
from deepinfer_core.interfaces.protocol import (
    Endpoint,
    Handle,
    HttpAnswer,
    HttpCall,
    JsonAnswer,
    ServiceView,
)
from deepinfer_core.plugin import BuildContext

from deepinfer_recipe_bridge import body_schemas
from deepinfer_recipe_bridge.compat import responses_body
from deepinfer_recipe_bridge.dialects import CHAT_DIALECT
from deepinfer_recipe_bridge.errors import BadRequest, with_reason
from deepinfer_recipe_bridge.event_writer import EventWriter
from deepinfer_recipe_bridge.json_text import json_data, json_text
from deepinfer_recipe_bridge.official_types import complete_response
from deepinfer_recipe_bridge.options import ResponsesOptions
from deepinfer_recipe_bridge.prepared import Prepared
from deepinfer_recipe_bridge.reading import Reading, conversion_options, converted, parsed
from deepinfer_recipe_bridge.response_failures import OpenResponses
from deepinfer_recipe_bridge.response_writer import ResponseWriter
from deepinfer_recipe_bridge.stored import StoredResponse, StoredResponses
from deepinfer_recipe_bridge.strict_tools import strict_parameters
from deepinfer_recipe_bridge.surface import Surface
from deepinfer_recipe_bridge.users import user_of

__all__ = ["Responses", "build"]


class Responses(Surface):
    """Responses, and those that are stored.

    Args:
        options: of the protocol.
    """

    id_prefix = "resp_"
    response = recipe.ResponsesResponse
    before_text = re.compile(rb'"type":"response\.(?:output|reasoning)_text\.delta",.*?"delta":"')

    def __init__(self, options: ResponsesOptions) -> None:
        super().__init__(options)
        self._stored = StoredResponses(options.store_responses, options.store_bytes)
        self._open = OpenResponses()

    def endpoints(self, service: ServiceView) -> Sequence[Endpoint]:
        """Creating a response; reading and deleting a stored one."""
        one = "/v1/responses/{response_id}"
        return [
            Endpoint(
                method="POST",
                path="/v1/responses",
                aliases=("/responses",),
                handle=partial(self.answered, service),
                dialect=self._open.dialect,
                summary="An answer to items of a conversation.",
                body=body_schemas.RESPONSES,
            ),
            _stored("GET", one, self.retrieved, "A stored response."),
            _stored("DELETE", one, self.deleted, "Forget a stored response."),
            _stored("POST", one, self.absent, "Nothing: responses are not compacted."),
        ]

    async def retrieved(self, call: HttpCall) -> HttpAnswer:
        """A stored response."""
        return JsonAnswer(content=self._found(call).text.encode())

    async def deleted(self, call: HttpCall) -> HttpAnswer:
        """Forget a stored response."""
        name = call.path_values["response_id"]
        if not self._stored.remove(name, call.key_label):
            raise _no_response(name)
        shown = {"id": name, "object": "response", "deleted": True}
        return JsonAnswer(content=json_text(shown).encode())

    async def absent(self, call: HttpCall) -> HttpAnswer:
        """What other servers have below this path.

        Raises:
            NotFound: always.
        """
        raise NotFound("this server has nothing of the kind", hint="POST to /v1/responses")

    def _found(self, call: HttpCall) -> StoredResponse:
        name = call.path_values["response_id"]
        found = self._stored.get(name, call.key_label)
        if found is None:
            raise _no_response(name)
        return found

    def read(self, call: HttpCall, model_names: tuple[str, ...]) -> Reading:
        """Read a body; see ``Surface``."""
        body = responses_body(call.body) if self.options.compat else call.body
        _check_fields(body)
        user, earlier = user_of(body, "user"), self._earlier(call)
        if earlier:
            body = {**body, "input": [*earlier, *_items(body.get("input"))]}
        request = parsed(recipe.ResponsesRequest, body)
        options, model = conversion_options(model_names), request.model
        echo, names = request.echo(), _namespaces(request, options)
        found = converted(request, options)
        _check_messages(body, found.conversation)

        def generator(name: str) -> Any:
            made = recipe.ResponsesRequest.chunk_generator(found, name, model)
            return made.with_echo(echo).with_namespace_tool_map(names)

        return Reading(
            model=model,
            request=found,
            conversation=found.conversation,
            parsing=found.parsing_options,
            generator=generator,
            user=user,
            several_calls=body.get("parallel_tool_calls") is not False,
            strict_parameters=strict_parameters(body, names),
            history=self._history(body),
        )

    def writer(self, prepared: Prepared) -> EventWriter:
        """What writes the events of one stream; see ``Surface``."""
        return ResponseWriter(
            self.response.sse_event_name,
            self.before_text,
            lambda response, is_last: self._finish(prepared, response, keep=is_last),
            self._open,
            prepared.call.request_id,
        )

    def stream_ended(self, prepared: Prepared) -> None:
        """A stream is over; see ``Surface``."""
        self._open.cut(prepared.call.request_id)

    def completed(self, response: dict[str, Any]) -> None:
        """Add what the official types require; see ``Surface``."""
        complete_response(response)

    def response_text(self, prepared: Prepared, whole: str) -> str:
        """A whole response; see ``Surface``."""
        response = json_data(whole)
        return json_text(response) if self._finish(prepared, response, keep=True) else whole

    def _finish(self, prepared: Prepared, response: dict[str, Any], *, keep: bool) -> bool:
        """Bring a response to the form in which it is sent; whether that is another one.

        It is stored if it is to be, the last time that it is shown.
        """
        if self.options.compat:
            self.completed(response)
        if prepared.reading.history is not None:
            previous = prepared.call.body.get("previous_response_id")
            response |= {"store": True, "previous_response_id": previous}
            if keep:
                self._keep(prepared, json_text(response))
        return self.options.compat or prepared.reading.history is not None

    def _earlier(self, call: HttpCall) -> list[Any]:
        """Items of the stored response that a request goes on from.

        Raises:
            BadRequest: it is not there, or nothing is stored here.
        """
        name = call.body.get("previous_response_id")
        if name is None:
            return []
        found = self._stored.get(name, call.key_label) if isinstance(name, str) else None
        if found is not None:
            return found.items
        if self._stored.is_used:
            raise BadRequest(
                "there is no stored response of this id; it may have been forgotten",
                hint="send the whole conversation as input",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        raise BadRequest(
            "responses are not stored on this server",
            hint="send the whole conversation as input",
            param="previous_response_id",
        )

    def _history(self, body: dict[str, Any]) -> str | None:
        """Items of the input as JSON text; None: the response is not to be stored."""
        if not self._stored.is_used or body.get("store") is False:
            return None
        return json_text(_items(body.get("input")))

    def _keep(self, prepared: Prepared, text: str) -> None:
        history = prepared.reading.history or "[]"
        label = prepared.call.key_label
        self._stored.put(prepared.response_id, StoredResponse(label, text, history))


def _stored(
    method: Literal["GET", "POST", "DELETE"], path: str, handle: Handle, summary: str
) -> Endpoint:
    return Endpoint(
        method=method,
        path=path,
        aliases=(path.removeprefix("/v1"),),
        handle=handle,
        dialect=CHAT_DIALECT,
        summary=summary,
    )


def _items(given: Any) -> list[Any]:
    """Input as items; a text is a message of the user."""
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return given if isinstance(given, list) else []


def _no_response(name: str) -> NotFound:
    return NotFound(f"there is no stored response {name[:80]}")


def _check_fields(body: dict[str, Any]) -> None:
    """Refuse fields that stand for a part of the conversation, or for another way to answer."""
    for field in ("background", "conversation", "prompt"):
        if body.get(field):
            raise BadRequest(f"{field} is not supported", param=field)


def _check_messages(body: dict[str, Any], conversation: recipe.Conversation) -> None:
    """Refuse input of which nothing is left: items of unknown types are passed over."""
    instructions = 1 if body.get("instructions") else 0
    if body.get("input") is not None and len(conversation.messages) <= instructions:
        raise BadRequest(
            "input holds no item that this server can read",
            hint="send messages, function calls and their results",
            param="input",
        )


def _namespaces(
    request: recipe.ResponsesRequest, options: recipe.ConversionOptions
) -> dict[str, tuple[str, str]]:
    try:
        return request.namespace_tool_map(options)
    except recipe.ConversionError as error:
        raise with_reason(error.body) from error


def build(options: ResponsesOptions, context: BuildContext) -> Responses:
    """Build the component ``bridge.responses``."""
    return Responses(options)
