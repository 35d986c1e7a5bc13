"""What does the body of a request say, once deepseek-recipe has read it?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import deepseek_recipe as recipe

from deepinfer_recipe_bridge.blame import blamed
from deepinfer_recipe_bridge.errors import BadRequest, with_reason

__all__ = ["Reading", "check_tool_count", "conversion_options", "converted", "parsed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One request in the recipe's terms.

    Attributes:
        model: name that was asked for.
        request: what was converted.
        conversation: what the prompt is written from.
        parsing: how the answer is read.
        generator: from the id of a response to the recipe's generator of its events; for one call.
        user: for whom the request is made; empty: not said.
        several_calls: a block of calls may hold more than one.
        strict_parameters: of strict tools, as the caller wrote them, by name.
        history: JSON text that is stored with the response; None: the response is not stored.
    """

    model: str
    request: recipe.ConversationRequest
    conversation: recipe.Conversation
    parsing: recipe.ParsingOptions
    generator: Callable[[str], Any]
    user: str = ""
    several_calls: bool = True
    strict_parameters: Mapping[str, Any] = field(default_factory=dict)
    history: str | None = None


def conversion_options(model_names: Iterable[str]) -> recipe.ConversionOptions:
    """Options under which every one of some names is this model."""
    version = recipe.ModelVersion.DeepseekV41Flash
    return recipe.ConversionOptions().with_model_versions_by_name(
        dict.fromkeys(model_names, version)
    )


def parsed(kind: Callable[[dict[str, Any]], Any], body: dict[str, Any]) -> Any:
    """A request object of the recipe.

    Raises:
        BadRequest: the body has not its form, or holds what is no text or number of JSON.
    """
    try:
        return kind(body)
    except RecursionError as error:
        raise BadRequest("the body is nested too deeply") from error
    except UnicodeEncodeError as error:
        raise BadRequest("the body holds code points that are no characters") from error
    except OverflowError as error:
        raise BadRequest(f"the body holds a number out of range: {error}") from error
    except (ValueError, TypeError) as error:
        place, reason = blamed(kind, body, str(error))
        raise BadRequest(reason, param=place) from error


def converted(request: Any, options: recipe.ConversionOptions) -> recipe.ConversationRequest:
    """The conversation of a request, which is used up.

    Raises:
        BadRequest: the recipe refuses it.
    """
    try:
        found: recipe.ConversationRequest = request.convert(options)
        return found
    except recipe.ConversionError as error:
        raise with_reason(error.body) from error


def check_tool_count(body: dict[str, Any], most: int) -> None:
    """Refuse a request with more tools than are taken.

    Raises:
        BadRequest: it has.
    """
    tools = body.get("tools")
    if isinstance(tools, list) and len(tools) > most:
        raise BadRequest(
            f"{len(tools)} tools are declared, at most {most} are taken", param="tools"
        )
