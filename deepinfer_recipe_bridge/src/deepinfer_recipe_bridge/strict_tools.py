"""What did the caller write of strict tools, of which deepseek-recipe keeps a part only?

Its normalisation of strict parameters closes objects and drops what it does not know, such as
lengths and constants. That is what the prompt says; calls are held to both. Of Messages it passes
over ``strict`` itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["restored", "strict_parameters"]


def strict_parameters(
    body: Mapping[str, Any], names: Mapping[str, tuple[str, str]] | None = None
) -> dict[str, Any]:
    """Parameters of the strict tools of a body as they stand there, by the name in calls.

    Args:
        body: of any protocol, as the recipe is given it.
        names: namespace and name in it, by the name in calls.
    """
    in_calls = {pair: name for name, pair in (names or {}).items()}
    items = body.get("input")
    # Found tools first: where a name is given twice, it stays that of the declared one.
    searched = [one for one in items if isinstance(one, dict)] if isinstance(items, list) else []
    found: dict[str, Any] = {}
    for holder in (*searched, body):
        for namespace, tool in _tools(holder.get("tools"), ""):
            name = tool.get("name")
            if tool.get("strict") is True and isinstance(name, str):
                key = "input_schema" if "input_schema" in tool else "parameters"
                full = f"{namespace}::{name}" if namespace else name
                found[in_calls.get((namespace, name), full)] = tool.get(key)
    return found


def restored(written: Any, kept: Any) -> Any:
    """What the recipe made of a schema, with what it dropped; where both say something, its own."""
    if isinstance(written, dict) and isinstance(kept, dict):
        both = {key: restored(written[key], kept[key]) for key in kept if key in written}
        return {**written, **kept, **both}
    if isinstance(written, list) and isinstance(kept, list) and len(written) == len(kept):
        return [restored(*pair) for pair in zip(written, kept, strict=True)]
    return kept


def _tools(tools: Any, namespace: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for tool in tools if isinstance(tools, list) else ():
        if not isinstance(tool, dict):
            continue
        function, inner = tool.get("function"), tool.get("tools")
        yield namespace, function if isinstance(function, dict) else tool
        if isinstance(inner, list):
            yield from _tools(inner, str(tool.get("name")))
