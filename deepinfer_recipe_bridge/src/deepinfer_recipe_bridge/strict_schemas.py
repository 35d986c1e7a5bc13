"""Which form must a strict schema have, so that deepseek-recipe keeps all of it?

Its normalisation of strict schemas keeps definitions under ``$def`` only, drops ``$defs`` and
``definitions`` with references left dangling, and refuses ``{"$ref": ...}`` inside ``anyOf``. Both
are what official clients send for nested models, so definitions are renamed, and references inside
``anyOf`` are written out. One of a recursive type cannot be, and is refused by the recipe.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from deepinfer_recipe_bridge.errors import BadRequest

__all__ = ["MAX_WRITTEN_OUT", "strict_form"]

MAX_WRITTEN_OUT = 2000
"""References that are written out in one schema, at most: each may hold others."""

_KEPT = "$def"
_RENAMED = ("$defs", "definitions")
_VALUES = ("const", "enum", "default", "examples")
"""Keywords whose values are data, not schemas."""


def strict_form(schema: Any) -> Any:
    """A copy of a schema in that form; what is no object is left alone.

    Raises:
        BadRequest: written out, it would be too large.
    """
    if not isinstance(schema, dict):
        return schema
    definitions: dict[str, Any] = {}
    for key in (*_RENAMED, _KEPT):
        if isinstance(found := schema.get(key), dict):
            definitions |= found
    rest = {key: value for key, value in schema.items() if key not in (*_RENAMED, _KEPT)}
    renamed = _walk(rest, _with_new_name)
    if not definitions:
        return renamed
    writer = _Writer({name: _walk(one, _with_new_name) for name, one in definitions.items()})
    written = {name: writer.write(one, (name,)) for name, one in writer.definitions.items()}
    return {**writer.write(renamed, ()), _KEPT: written}


def _walk(node: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    if isinstance(node, list):
        return [_walk(one, change) for one in node]
    if not isinstance(node, dict):
        return node
    return change(
        {key: value if key in _VALUES else _walk(value, change) for key, value in node.items()}
    )


def _with_new_name(node: dict[str, Any]) -> dict[str, Any]:
    reference = node.get("$ref")
    if isinstance(reference, str):
        for name in _RENAMED:
            if reference.startswith(f"#/{name}/"):
                return {**node, "$ref": f"#/{_KEPT}/{reference.removeprefix(f'#/{name}/')}"}
    return node


class _Writer:
    """Writes references inside ``anyOf`` out."""

    def __init__(self, definitions: dict[str, Any]) -> None:
        self.definitions = definitions
        self._written = 0

    def write(self, node: Any, inside: tuple[str, ...]) -> Any:
        """A copy of a schema; ``inside`` names the definitions that it stands in."""
        if isinstance(node, list):
            return [self.write(one, inside) for one in node]
        if not isinstance(node, dict):
            return node
        copy = {
            key: value if key in _VALUES else self.write(value, inside)
            for key, value in node.items()
        }
        if isinstance(branches := node.get("anyOf"), list):
            copy["anyOf"] = [self._branch(one, inside) for one in branches]
        return copy

    def _branch(self, node: Any, inside: tuple[str, ...]) -> Any:
        name = self._named(node)
        if name is None or name in inside:
            return self.write(node, inside)
        self._written += 1
        if self._written > MAX_WRITTEN_OUT:
            raise BadRequest(
                f"a strict schema has over {MAX_WRITTEN_OUT} references inside anyOf",
                hint="write fewer alternatives, or leave out strict",
            )
        siblings = {key: value for key, value in node.items() if key != "$ref"}
        target = self.write(self.definitions[name], (*inside, name))
        return {**target, **siblings} if isinstance(target, dict) else target

    def _named(self, node: Any) -> str | None:
        reference = node.get("$ref") if isinstance(node, dict) else None
        if not isinstance(reference, str) or not reference.startswith(f"#/{_KEPT}/"):
            return None
        name = unquote(reference.removeprefix(f"#/{_KEPT}/")).replace("~1", "/").replace("~0", "~")
        return name if name in self.definitions else None
