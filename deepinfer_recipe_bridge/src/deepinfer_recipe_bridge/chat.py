"""How is Chat Completions spoken?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import deepseek_recipe as recipe
from deepinfer_core.interfaces.protocol import Endpoint, HttpCall, ServiceView
from deepinfer_core.plugin import BuildContext

from deepinfer_recipe_bridge import body_schemas
from deepinfer_recipe_bridge.codec import codec_of
from deepinfer_recipe_bridge.compat import chat_body
from deepinfer_recipe_bridge.dialects import CHAT_DIALECT
from deepinfer_recipe_bridge.official_types import complete_chat
from deepinfer_recipe_bridge.options import ChatOptions
from deepinfer_recipe_bridge.preparing import prompt_ids
from deepinfer_recipe_bridge.reading import Reading, conversion_options, converted, parsed
from deepinfer_recipe_bridge.strict_tools import strict_parameters
from deepinfer_recipe_bridge.surface import Surface
from deepinfer_recipe_bridge.users import user_of

__all__ = ["Chat", "build"]


class Chat(Surface):
    """Chat Completions."""

    id_prefix = "chatcmpl-"
    response = recipe.ChatCompletionResponse
    before_text = re.compile(rb'"delta":\{"content":(?:null,"reasoning_content":)?"')

    def endpoints(self, service: ServiceView) -> Sequence[Endpoint]:
        """One route under three paths."""
        return [
            Endpoint(
                method="POST",
                path="/v1/chat/completions",
                aliases=("/chat/completions", "/beta/chat/completions"),
                handle=partial(self.answered, service),
                dialect=CHAT_DIALECT,
                summary="An answer to a conversation.",
                body=body_schemas.CHAT,
            )
        ]

    def read(self, call: HttpCall, model_names: tuple[str, ...]) -> Reading:
        """Read a body; see ``Surface``."""
        body = chat_body(call.body) if self.options.compat else call.body
        user = user_of(body, "user_id", "user")
        request = parsed(recipe.ChatCompletionRequest, body)
        model = request.model
        found = converted(request, conversion_options(model_names))
        return Reading(
            model=model,
            request=found,
            conversation=found.conversation,
            parsing=found.parsing_options,
            generator=lambda name: recipe.ChatCompletionRequest.chunk_generator(found, name, model),
            user=user,
            several_calls=body.get("parallel_tool_calls") is not False,
            strict_parameters=strict_parameters(body),
        )

    def conversation_tokens(self, service: ServiceView, call: HttpCall) -> Sequence[int]:
        """Tokens of the prompt of this body; see the interface."""
        body = call.body | {"model": call.body.get("model") or service.model_names[0]}
        reading = self.checked(service, replace(call, body=body))
        facts = service.engine.facts
        return prompt_ids(reading, codec_of(facts), facts.max_model_len)

    def completed(self, response: dict[str, Any]) -> None:
        """Add what the official types require; see ``Surface``."""
        complete_chat(response)


def build(options: ChatOptions, context: BuildContext) -> Chat:
    """Build the component ``bridge.chat``."""
    return Chat(options)
