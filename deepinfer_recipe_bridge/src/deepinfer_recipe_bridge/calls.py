"""Which texts are calls of declared tools?

A call block, D being the marker token::

    <D calls>
    <D invoke name="f">
    <D parameter name="a" string="true">raw text</D parameter>
    <D parameter name="n" string="false">3</D parameter>
    </D invoke>
    </D calls>

Between the parts are line ends and nothing else; a call without parameters has an empty line. The
marker is a control token: markup that is spelled out in ordinary tokens is text, here as for the
parser that reads the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deepinfer_recipe_bridge import tags
from deepinfer_recipe_bridge.errors import UnsupportedGrammar
from deepinfer_recipe_bridge.parameters import ParameterSchemas
from deepinfer_recipe_bridge.tags import Format

__all__ = ["CallForms", "Tool"]

_JOINED = (
    "allOf", "anyOf", "oneOf", "not", "if", "$ref", "patternProperties", "propertyNames",
    "minProperties", "maxProperties", "dependentRequired", "dependentSchemas", "dependencies",
)  # fmt: skip
"""What a schema may say of several parameters at once, which no order of them expresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A declared tool.

    Attributes:
        name: as calls spell it.
        parameters: its JSON Schema.
        strict: its calls were promised to follow the schema.
    """

    name: str
    parameters: Any
    strict: bool


@dataclass(frozen=True, slots=True)
class CallForms:
    """Writes forms of calls.

    Attributes:
        marker: spelling of the marker token.
    """

    marker: str

    def block(self, inside: Format) -> Format:
        """A whole block behind a text."""
        return tags.sequence(tags.text("\n\n<"), self._marked(" calls>\n"), inside)

    def inside(self, tools: Sequence[Tool], by_schema: Sequence[bool], *, several: bool) -> Format:
        """What follows the opening line of a block: calls, and the closing line.

        Args:
            tools: at least one.
            by_schema: for each of them, whether parameters follow their schemas.
            several: more than one call may stand in a block.

        Raises:
            UnsupportedGrammar: a schema asks for what calls cannot be held to.
        """
        one = tags.either(
            self._call(tool, self._by_schema(tool) if strictly else self._by_syntax(tool))
            for tool, strictly in zip(tools, by_schema, strict=True)
        )
        calls = tags.repeated(one, at_least_once=True) if several else one
        return tags.sequence(calls, tags.text("</"), self._marked(" calls>"))

    def _call(self, tool: Tool, parameters: Format) -> Format:
        return tags.sequence(
            tags.text("<"),
            self._marked(f' invoke name="{tool.name}">\n'),
            parameters,
            tags.text("</"),
            self._marked(" invoke>\n"),
        )

    def _by_syntax(self, tool: Tool) -> Format:
        """Any values, under declared names where names are declared."""
        names = [name for name in _properties(tool) if _is_plain(name)]
        word = tags.either(map(tags.text, names)) if names else tags.matching(r'[^"<>\n\r]+')
        values = tags.either(
            (
                tags.sequence(tags.text('" string="true">'), tags.ANY_TEXT),
                tags.sequence(tags.text('" string="false">'), tags.json_value(True)),
            )
        )
        one = self._parameter(tags.sequence(word, values))
        return tags.either((tags.text("\n"), tags.repeated(one, at_least_once=True)))

    def _by_schema(self, tool: Tool) -> Format:
        """Values of the schema; declared parameters in their order, others only if none is."""
        schema = tool.parameters if isinstance(tool.parameters, dict) else {}
        if joined := [key for key in _JOINED if key in schema]:
            raise UnsupportedGrammar(
                f"the parameters of tool {tool.name} have {', '.join(joined)}, to which calls "
                "cannot be held",
                hint="describe each parameter by itself",
                param="tools",
            )
        required, schemas = schema.get("required", []), ParameterSchemas(schema)
        parts, forced = [], False
        for name, inner in _properties(tool).items():
            needed = name in required
            if not _is_plain(name):
                if needed:
                    raise UnsupportedGrammar(
                        f"tool {tool.name} needs a parameter whose name cannot stand in a call",
                        hint="names without quotes, angle brackets and line ends can",
                        param="tools",
                    )
                continue
            if inner is False and not needed:
                continue
            value = tags.sequence(tags.text(f'{name}"'), schemas.forms(inner))
            one = self._parameter(value)
            parts.append(one if needed else tags.maybe(one))
            forced = forced or needed
        if undeclared := [name for name in required if name not in _properties(tool)]:
            raise UnsupportedGrammar(
                f"tool {tool.name} needs parameters that it does not describe: "
                f"{', '.join(map(str, undeclared))}",
                hint="list them under properties",
                param="tools",
            )
        if not parts:
            closed = schema.get("additionalProperties") is False
            return tags.text("\n") if closed or _properties(tool) else self._by_syntax(tool)
        whole = tags.sequence(*parts)
        return whole if forced else tags.either((tags.text("\n"), whole))

    def _parameter(self, named_value: Format) -> Format:
        return tags.sequence(
            tags.text("<"),
            self._marked(' parameter name="'),
            named_value,
            tags.text("</"),
            self._marked(" parameter>\n"),
        )

    def _marked(self, text: str) -> Format:
        return tags.sequence(tags.token(self.marker), tags.text(text))


def _properties(tool: Tool) -> dict[str, Any]:
    found = tool.parameters.get("properties") if isinstance(tool.parameters, dict) else None
    return found if isinstance(found, dict) else {}


def _is_plain(name: str) -> bool:
    """Whether the parser reads a name back as it was written."""
    return bool(name) and not any(letter in name for letter in '"<>\n\r')
