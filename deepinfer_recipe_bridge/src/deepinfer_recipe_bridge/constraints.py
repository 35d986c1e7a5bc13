"""What must the text of an answer look like, and from where on?

The recipe only says what is wished for; the engine's grammar component enforces it. Where the
answer begins with reasoning, a format holds behind ``</think>``. With tools the reasoning is part
of the grammar, so that no call can stand inside of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import deepseek_recipe as recipe
from deepinfer_core.engine.grammar_request import GrammarRequest

from deepinfer_recipe_bridge import tags
from deepinfer_recipe_bridge.calls import CallForms, Tool
from deepinfer_recipe_bridge.codec import Codec
from deepinfer_recipe_bridge.errors import UnsupportedGrammar
from deepinfer_recipe_bridge.options import ToolGrammar
from deepinfer_recipe_bridge.strict_tools import restored

__all__ = ["OutputFormat", "Wish", "grammar_of", "output_format", "tools_of"]


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """A format that the answer itself must have.

    Attributes:
        kind: ``json_schema``, ``json_object`` or ``regex``.
        text: the schema or expression; empty for ``json_object``.
    """

    kind: str
    text: str = ""

    @property
    def tag(self) -> tags.Format:
        """The same as a part of a structural tag."""
        if self.kind == "regex":
            return tags.matching(self.text)
        return tags.json_value(json.loads(self.text) if self.text else {"type": "object"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a request wishes of the text.

    Attributes:
        format: of the answer; None: any.
        tools: that may be called.
        forced: the prompt has opened a call block already.
        several: a block may hold more than one call.
        thinks: the answer begins with reasoning.
        prefix_ids: tokens of the answer's beginning, which stand in the prompt.
    """

    format: OutputFormat | None = None
    tools: tuple[Tool, ...] = ()
    forced: bool = False
    several: bool = True
    thinks: bool = False
    prefix_ids: tuple[int, ...] = ()


def output_format(conversation: recipe.Conversation) -> OutputFormat | None:
    """The format that a conversation announces; None: any text."""
    match conversation.response_format:
        case "json_schema":
            return OutputFormat("json_schema", json.dumps(conversation.response_schema))
        case "json_object":
            return OutputFormat("json_object")
        case "regex":
            return OutputFormat("regex", conversation.response_regex or "")
    return None


def tools_of(conversation: recipe.Conversation, written: Mapping[str, Any]) -> tuple[Tool, ...]:
    """The tools that a conversation declares.

    Args:
        conversation: declares them.
        written: parameters of strict tools as the caller wrote them, by name.
    """
    return tuple(
        Tool(
            name=one.name,
            parameters=restored(written.get(one.name), one.parameters),
            strict=bool(one.strict) or one.name in written,
        )
        for one in conversation.tools
    )


def grammar_of(
    wish: Wish, codec: Codec, *, kinds: Sequence[str], level: ToolGrammar
) -> GrammarRequest | None:
    """What the engine is asked to enforce; None: nothing.

    Args:
        wish: of the request.
        codec: has the control tokens.
        kinds: of grammar that the engine takes.
        level: how far calls are enforced.

    Raises:
        UnsupportedGrammar: something that was promised cannot be enforced.
    """
    if wish.tools and (form := _with_tools(wish, codec, kinds, level)) is not None:
        return GrammarRequest(
            kind="structural_tag", grammar=tags.tag_text(form), prefix_token_ids=wish.prefix_ids
        )
    if wish.format is None or wish.forced:
        return None
    _check_kind(wish.format.kind, kinds, "a format of the answer")
    return GrammarRequest(
        kind=wish.format.kind,
        grammar=wish.format.text,
        trigger_token_ids=(codec.think_end_id,) if wish.thinks else (),
        prefix_token_ids=wish.prefix_ids,
    )


def _with_tools(
    wish: Wish, codec: Codec, kinds: Sequence[str], level: ToolGrammar
) -> tags.Format | None:
    strict = any(tool.strict for tool in wish.tools)
    if level == "off" and wish.format is None:
        return None
    if "structural_tag" not in kinds:
        promised = strict or wish.forced if level == "auto" else level != "off"
        if not promised and wish.format is None:
            return None
        _check_kind("structural_tag", kinds, _promise(wish, strict=strict))
    by_schema = [
        level == "schema" or (level == "auto" and (tool.strict or wish.forced))
        for tool in wish.tools
    ]
    forms = CallForms(codec.dsml)
    inside = forms.inside(wish.tools, by_schema, several=wish.several)
    if wish.forced:
        return inside
    block = forms.block(inside)
    if wish.format is None:
        answer = tags.sequence(tags.ANY_TEXT, tags.maybe(block))
    else:
        answer = tags.either((wish.format.tag, block))
    if not wish.thinks:
        return answer
    return tags.sequence(tags.ANY_TEXT, tags.token(codec.think_end), answer)


def _promise(wish: Wish, *, strict: bool) -> str:
    """What calls are enforced for."""
    if wish.forced:
        return "a forced call (tool_choice)"
    if strict:
        return "a strict tool"
    return "a tool" if wish.format is None else "a format of the answer beside tools"


def _check_kind(kind: str, kinds: Sequence[str], what: str) -> None:
    if kind in kinds:
        return
    if not kinds:
        raise UnsupportedGrammar(
            f"{what} was asked for, which takes a grammar component, and this server uses none",
            hint="the operator may set components.grammar.use if deepinfer-grammar is installed, "
            "else install it first",
        )
    raise UnsupportedGrammar(
        f"{what} was asked for, and the grammar component of this server takes no {kind}",
        hint="the operator may choose another one with components.grammar.use",
    )
