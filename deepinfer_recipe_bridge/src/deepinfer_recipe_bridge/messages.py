"""How is Messages spoken?

The recipe knows neither ``output_config.format`` nor a forced ``any``; both are put into a copy of
the conversation that the prompt is written from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import deepseek_recipe as recipe
from deepinfer_core.interfaces.protocol import (
    Endpoint,
    HttpAnswer,
    HttpCall,
    JsonAnswer,
    ServiceView,
)
from deepinfer_core.plugin import BuildContext

from deepinfer_recipe_bridge import body_schemas
from deepinfer_recipe_bridge.codec import codec_of
from deepinfer_recipe_bridge.compat import messages_body
from deepinfer_recipe_bridge.dialects import MESSAGES_DIALECT
from deepinfer_recipe_bridge.errors import BadRequest
from deepinfer_recipe_bridge.official_types import complete_message
from deepinfer_recipe_bridge.options import MessagesOptions
from deepinfer_recipe_bridge.preparing import prompt_ids
from deepinfer_recipe_bridge.reading import Reading, conversion_options, converted, parsed
from deepinfer_recipe_bridge.strict_tools import strict_parameters
from deepinfer_recipe_bridge.surface import Surface
from deepinfer_recipe_bridge.users import user_of

__all__ = ["Messages", "build"]


class Messages(Surface):
    """Messages, and the count of their tokens.

    Args:
        options: of the protocol.
    """

    id_prefix = "msg_"
    response = recipe.MessagesResponse
    before_text = re.compile(
        rb'"delta":\{"type":(?:"text_delta","text"|"thinking_delta","thinking"):"'
    )

    def __init__(self, options: MessagesOptions) -> None:
        super().__init__(options)
        self._any_forces = options.messages_any_forces

    def endpoints(self, service: ServiceView) -> Sequence[Endpoint]:
        """Responses, and token counts."""
        return [
            Endpoint(
                method="POST",
                path=path,
                aliases=(f"/anthropic{path}",),
                handle=partial(handle, service),
                dialect=MESSAGES_DIALECT,
                summary=summary,
                body=body_schemas.MESSAGES,
                counts=counts,
            )
            for path, handle, summary, counts in (
                ("/v1/messages", self.answered, "An answer to a conversation.", True),
                (
                    "/v1/messages/count_tokens",
                    self.counted,
                    "Tokens that its prompt would have.",
                    False,
                ),
            )
        ]

    async def counted(self, service: ServiceView, call: HttpCall) -> HttpAnswer:
        """Count the tokens that a prompt would have."""
        call.notes.prompt_tokens = await service.in_threads(self._count, service, call)
        return JsonAnswer(content=json.dumps({"input_tokens": call.notes.prompt_tokens}).encode())

    def _count(self, service: ServiceView, call: HttpCall) -> int:
        reading, facts = self.checked(service, call), service.engine.facts
        return len(prompt_ids(reading, codec_of(facts), facts.max_model_len))

    def read(self, call: HttpCall, model_names: tuple[str, ...]) -> Reading:
        """Read a body; see ``Surface``."""
        body = messages_body(call.body) if self.options.compat else call.body
        user = user_of(body, "metadata.user_id")
        schema, choice = _schema(body), body.get("tool_choice")
        request = parsed(recipe.MessagesRequest, body)
        model = request.model
        found = converted(request, conversion_options(model_names))
        conversation, parsing = found.conversation, found.parsing_options
        kind = choice.get("type") if isinstance(choice, dict) else None
        if self._any_forces and kind == "any" and _may_be_forced(conversation):
            conversation = _copy(conversation, tool_choice="required")
            parsing.starts_in_tool_calls = True
        if schema is not None:
            conversation = _copy(conversation, response_schema=schema)
        parallel = isinstance(choice, dict) and choice.get("disable_parallel_tool_use") is True
        return Reading(
            model=model,
            request=found,
            conversation=conversation,
            parsing=parsing,
            generator=lambda name: recipe.MessagesRequest.chunk_generator(found, name, model),
            user=user,
            several_calls=not parallel,
            strict_parameters=strict_parameters(body),
        )

    def completed(self, response: dict[str, Any]) -> None:
        """Add what the official types require; see ``Surface``."""
        complete_message(response)


def _may_be_forced(conversation: recipe.Conversation) -> bool:
    return bool(conversation.tools) and not conversation.thinking_mode


def _copy(conversation: recipe.Conversation, **changes: Any) -> recipe.Conversation:
    fields: dict[str, Any] = {
        "thinking_mode": conversation.thinking_mode,
        "tools": conversation.tools,
        "tool_choice": conversation.tool_choice,
        "reasoning_effort": conversation.reasoning_effort,
        "response_schema": conversation.response_schema,
    }
    return recipe.Conversation(conversation.messages, **(fields | changes))


def _schema(body: dict[str, Any]) -> dict[str, Any] | None:
    """The JSON Schema that the answer must have; None: none was asked for.

    Raises:
        BadRequest: the format is of another kind, or has no schema.
    """
    config = body.get("output_config")
    where, form = "output_config.format", config.get("format") if isinstance(config, dict) else None
    if form is None:
        where, form = "output_format", body.get("output_format")
    if form is None:
        return None
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        raise BadRequest(f"{where} must be of type json_schema", param=where)
    schema = form.get("schema")
    if not isinstance(schema, dict):
        raise BadRequest(f"{where}.schema must be a JSON Schema", param=f"{where}.schema")
    return schema


def build(options: MessagesOptions, context: BuildContext) -> Messages:
    """Build the component ``bridge.messages``."""
    return Messages(options)
