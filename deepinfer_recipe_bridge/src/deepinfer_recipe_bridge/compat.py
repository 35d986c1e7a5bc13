"""What do official clients send that deepseek-recipe does not read, and what is it rewritten to?

Each function gives a changed copy, which shares what is not changed. What has another type than a
rewrite expects is left for the recipe to refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from deepinfer_recipe_bridge.strict_schemas import strict_form

__all__ = ["chat_body", "messages_body", "responses_body"]

Body = dict[str, Any]


def chat_body(body: Body) -> Body:
    """``max_completion_tokens``, role ``developer``, definitions of strict schemas."""
    changed = dict(body)
    if body.get("max_tokens") is None and body.get("max_completion_tokens") is not None:
        changed["max_tokens"] = body["max_completion_tokens"]
    _each(changed, "messages", _without_developer)
    _each(changed, "tools", lambda tool: _at(tool, "function", _strict_parameters))
    form = body.get("response_format")
    if isinstance(form, dict):
        changed["response_format"] = _at(form, "json_schema", _strict_schema)
    return changed


def responses_body(body: Body) -> Body:
    """Definitions of strict schemas; tools may stand within a namespace."""
    changed = dict(body)
    _each(changed, "tools", _strict_tool)
    text = body.get("text")
    if isinstance(text, dict):
        changed["text"] = _at(text, "format", _strict_schema)
    return changed


def messages_body(body: Body) -> Body:
    """``type: custom`` of tools, which is the type that a tool has without one."""
    changed = dict(body)
    _each(changed, "tools", _without_custom)
    return changed


def _each(body: Body, key: str, change: Callable[[Body], Body]) -> None:
    values = body.get(key)
    if isinstance(values, list):
        body[key] = [change(one) if isinstance(one, dict) else one for one in values]


def _at(body: Body, key: str, change: Callable[[Body], Body]) -> Body:
    inner = body.get(key)
    return {**body, key: change(inner)} if isinstance(inner, dict) else body


def _without_developer(message: Body) -> Body:
    return {**message, "role": "system"} if message.get("role") == "developer" else message


def _without_custom(tool: Body) -> Body:
    if tool.get("type") != "custom":
        return tool
    return {key: value for key, value in tool.items() if key != "type"}


def _strict_parameters(function: Body) -> Body:
    return _strict(function, ("parameters",))


def _strict_schema(form: Body) -> Body:
    return _strict(form, ("schema",))


def _strict_tool(tool: Body) -> Body:
    changed = _strict(tool, ("parameters",))
    if isinstance(changed.get("tools"), list):
        changed = dict(changed)
        _each(changed, "tools", _strict_tool)
    return changed


def _strict(body: Body, keys: Iterable[str]) -> Body:
    if body.get("strict") is not True:
        return body
    return {**body, **{key: strict_form(body[key]) for key in keys if key in body}}
