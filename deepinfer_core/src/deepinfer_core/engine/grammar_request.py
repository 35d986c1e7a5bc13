"""What must the text of a request look like, and from where on?"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from deepinfer_core.engine.checks import check_token_ids
from deepinfer_core.errors import RequestError
from deepinfer_core.interfaces.grammar import GRAMMAR_KINDS, GrammarText

__all__ = ["GrammarRequest", "checked_grammar", "from_so_args"]

_PUBLISHED_KINDS = {"json": "json_schema", "regex": "regex", "ebnf": "ebnf"}
"""Kinds of DeepInfer 0.1.0's ``so_args``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrammarRequest:
    """Structured output of one request.

    Attributes:
        kind: ``json_schema``, ``json_object``, ``regex``, ``ebnf``, ``choice`` or
            ``structural_tag``.
        grammar: text of the grammar; a mapping or list stands for its JSON.
        root: name of the start rule of ``ebnf``.
        trigger_token_ids: the text is free until these have been drawn one after the other, and
            follows the grammar behind them; empty: from the first token on.
        bound_token_id: once this token was drawn, the trigger is forced, then the grammar holds;
            None: there is no such token.
        prefix_token_ids: ordinary tokens of the beginning of the text, which stand at the end of
            the prompt; the output goes on behind them. Not beside a trigger.

    Raises:
        RequestError: a value is of another type; the message names the field.
    """

    kind: str
    grammar: str | Mapping[str, Any] | list[Any] = ""
    root: str = "root"
    trigger_token_ids: Iterable[int] = ()
    bound_token_id: int | None = None
    prefix_token_ids: Iterable[int] = ()

    def __post_init__(self) -> None:
        """Check every field and bring it to one form."""
        if self.kind not in GRAMMAR_KINDS:
            raise RequestError(
                f"grammar.kind is {self.kind!r}", hint=f"kinds: {', '.join(GRAMMAR_KINDS)}"
            )
        if not isinstance(self.grammar, str):
            object.__setattr__(self, "grammar", _as_json(self.grammar))
        if not isinstance(self.root, str):
            raise RequestError("grammar.root is no text", hint="give the name of a rule")
        trigger = check_token_ids("grammar.trigger_token_ids", self.trigger_token_ids)
        object.__setattr__(self, "trigger_token_ids", trigger)
        prefix = check_token_ids("grammar.prefix_token_ids", self.prefix_token_ids)
        object.__setattr__(self, "prefix_token_ids", prefix)
        if prefix and trigger:
            raise RequestError(
                "grammar.prefix_token_ids and grammar.trigger_token_ids were given together",
                hint="a text that has begun needs no trigger",
            )
        if self.bound_token_id is not None:
            check_token_ids("grammar.bound_token_id", (self.bound_token_id,))
            if not trigger:
                raise RequestError(
                    "grammar.bound_token_id was given without a trigger",
                    hint="give the tokens that it forces as trigger_token_ids",
                )

    @property
    def text(self) -> GrammarText:
        """The grammar as components take it."""
        return GrammarText(kind=self.kind, text=str(self.grammar), root=self.root)  # type: ignore[arg-type]

    @property
    def trigger_ids(self) -> tuple[int, ...]:
        """``trigger_token_ids`` in the form that it has after checking."""
        return self.trigger_token_ids  # type: ignore[return-value]

    @property
    def prefix_ids(self) -> tuple[int, ...]:
        """``prefix_token_ids`` in the form that it has after checking."""
        return self.prefix_token_ids  # type: ignore[return-value]


def checked_grammar(grammar: object, so_args: Mapping[str, Any] | None) -> GrammarRequest | None:
    """The request that either of two fields makes.

    Raises:
        RequestError: both are given, or one is wrong.
    """
    if grammar is not None and so_args is not None:
        raise RequestError(
            "grammar and so_args are given", hint="both name the same thing; give one"
        )
    if so_args is not None:
        return from_so_args(_mapping("so_args", so_args))
    if grammar is None or isinstance(grammar, GrammarRequest):
        return grammar
    given = _mapping("grammar", grammar)
    known = {field.name for field in fields(GrammarRequest)}
    unknown = sorted(set(given) - known)
    if unknown or "kind" not in given:
        what = f"has {', '.join(map(repr, unknown))}" if unknown else "has no kind"
        raise RequestError(f"grammar {what}", hint=f"fields: {', '.join(sorted(known))}")
    return GrammarRequest(**given)


def _mapping(name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise RequestError(f"{name} is {type(value).__name__}", hint="give a mapping of its fields")
    return value


def _as_json(value: object) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(
            f"grammar.grammar is no JSON value: {error}", hint="give a text, or JSON data"
        ) from error


def from_so_args(so_args: Mapping[str, Any]) -> GrammarRequest:
    """The same request in the words of DeepInfer 0.1.0.

    Raises:
        RequestError: a key is unknown or missing, or a value is wrong.
    """
    known = {"schema_type", "schema", "trigger_token_ids", "bound_token_id"}
    unknown = sorted(set(so_args) - known)
    if unknown:
        raise RequestError(
            f"so_args has {', '.join(map(repr, unknown))}", hint=f"keys: {', '.join(sorted(known))}"
        )
    kind, schema = so_args.get("schema_type"), so_args.get("schema")
    if not isinstance(kind, str) or kind not in _PUBLISHED_KINDS or schema is None:
        kinds = ", ".join(_PUBLISHED_KINDS)
        raise RequestError(
            f"so_args has schema_type {kind!r} and {'no' if schema is None else 'a'} schema",
            hint=f"schema_type is one of {kinds}, schema is the text",
        )
    trigger = so_args.get("trigger_token_ids") or ()
    if trigger and isinstance(trigger, list | tuple) and isinstance(trigger[0], list | tuple):
        if len(trigger) > 1:
            raise RequestError(
                f"so_args has {len(trigger)} triggers in trigger_token_ids",
                hint="give the tokens of one, or a list of such a list",
            )
        [trigger] = trigger
    return GrammarRequest(
        kind=_PUBLISHED_KINDS[kind],
        grammar=schema,
        trigger_token_ids=trigger,
        bound_token_id=so_args.get("bound_token_id"),
    )
