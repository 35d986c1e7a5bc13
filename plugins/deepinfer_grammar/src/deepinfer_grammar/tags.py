"""How are control tokens, free text and grammars combined?

A structural tag is a JSON object ``{"type": "structural_tag", "format": F}``. F is an object with a
``type``:

* ``const_string`` with ``value``: this text.
* ``json_schema`` with ``json_schema``, ``regex`` with ``pattern``, ``grammar`` with ``grammar``
  (EBNF, start rule ``root``): a text of that grammar.
* ``any_text``: any text without control tokens.
* ``token`` with ``token``: one control token, by spelling or id.
* ``sequence`` and ``or`` with ``elements``; ``optional``, ``star`` and ``plus`` with ``content``.
* ``tag`` with ``begin``, ``content`` and ``end``: texts around a format.

A control token is never text and text is never a control token, so a call of a tool can be told
from its spelling.
"""

from __future__ import annotations

import json
from typing import Any

from deepinfer_core.interfaces.grammar import GrammarVocabulary

from deepinfer_grammar.errors import GrammarFault, SchemaFault
from deepinfer_grammar.json_text import parsed_json
from deepinfer_grammar.regular.charset import ANY
from deepinfer_grammar.rules import (
    EMPTY,
    Choice,
    Class,
    Control,
    Expression,
    Reference,
    Repeat,
    RuleSet,
    Sequence,
    Text,
    productive,
    renamed,
)

__all__ = ["empty_part", "tag_rules"]

_GRAMMARS = {"json_schema": "json_schema", "regex": "pattern", "grammar": "grammar"}
_KINDS = {"json_schema": "json_schema", "regex": "regex", "grammar": "ebnf"}
_REPEATS = {"optional": (0, 1), "star": (0, None), "plus": (1, None)}


def tag_rules(text: str, vocabulary: GrammarVocabulary) -> RuleSet:
    """Rules of a structural tag.

    Raises:
        GrammarFault: with the path of what is wrong.
    """
    return _read(text, vocabulary).grammar


def empty_part(text: str, vocabulary: GrammarVocabulary) -> tuple[str, str, str]:
    """The first grammar inside a structural tag that matches nothing, which one does.

    Returns:
        Its kind, its text, and its path.
    """
    reader = _read(text, vocabulary)
    live = productive(reader.grammar.rules)
    return next(part for name, part in reader.inner.items() if name not in live)


def _read(text: str, vocabulary: GrammarVocabulary) -> _Reader:
    whole = _whole(text)
    grammar = RuleSet()
    grammar.add("start", EMPTY)
    reader = _Reader(grammar, vocabulary)
    grammar.rules["start"] = reader.read(whole.get("format"), "#/format")
    return reader


def _whole(text: str) -> dict[str, Any]:
    whole = parsed_json(text, "the structural tag", float)
    if not isinstance(whole, dict):
        raise SchemaFault("a structural tag must be an object with a type and a format", "#")
    if whole.get("type") != "structural_tag":
        raise SchemaFault("the type of a structural tag must be 'structural_tag'", "#/type")
    return whole


class _Reader:
    def __init__(self, grammar: RuleSet, vocabulary: GrammarVocabulary) -> None:
        self.grammar = grammar
        self.vocabulary = vocabulary
        self.inner: dict[str, tuple[str, str, str]] = {}
        """Kind, text and path of the grammars inside, by the name of their start rule."""
        self._inner_names: dict[tuple[str, str], str] = {}

    def read(self, node: Any, path: str) -> Expression:
        """What matches a format."""
        if not isinstance(node, dict):
            raise SchemaFault("must be an object with a type", path)
        kind = node.get("type")
        if kind in _GRAMMARS:
            return self._inner(kind, self._value(node, _GRAMMARS[kind], path), path)
        if kind in _REPEATS:
            low, high = _REPEATS[kind]
            return Repeat(self.read(node.get("content"), f"{path}/content"), low, high)
        match kind:
            case "const_string":
                return self._text(node, "value", path)
            case "any_text":
                return self._any_text()
            case "token":
                return self._control(node.get("token"), f"{path}/token")
            case "sequence":
                return Sequence(self._elements(node, path))
            case "or":
                return Choice(self._elements(node, path))
            case "tag":
                content = self.read(node.get("content"), f"{path}/content")
                begin, end = self._text(node, "begin", path), self._text(node, "end", path)
                return Sequence((begin, content, end))
        raise SchemaFault(f"there is no format {kind!r}", f"{path}/type")

    def _value(self, node: dict[str, Any], key: str, path: str) -> str:
        value = node.get(key)
        if key == "json_schema" and isinstance(value, dict | bool):
            return json.dumps(value)
        if not isinstance(value, str):
            raise SchemaFault("must be a text", f"{path}/{key}")
        return value

    def _text(self, node: dict[str, Any], key: str, path: str) -> Expression:
        value = self._value(node, key, path)
        return Text(value) if value else EMPTY

    def _elements(self, node: dict[str, Any], path: str) -> tuple[Expression, ...]:
        elements = node.get("elements")
        if not isinstance(elements, list) or not elements:
            raise SchemaFault("must be a list of at least one format", f"{path}/elements")
        return tuple(
            self.read(one, f"{path}/elements/{index}") for index, one in enumerate(elements)
        )

    def _any_text(self) -> Expression:
        if "any_text" not in self.grammar.rules:
            self.grammar.add("any_text", Repeat(Class(ANY), 0, None))
        return Reference("any_text")

    def _control(self, value: Any, path: str) -> Expression:
        controls = self.vocabulary.controls
        if isinstance(value, str) and value in controls:
            return Control(controls[value])
        if isinstance(value, int) and value in controls.values():
            return Control(value)
        known = ", ".join(sorted(controls)) or "none"
        raise SchemaFault(f"{value!r} is no control token", path, hint=f"there are: {known}")

    def _inner(self, kind: str, text: str, path: str) -> Expression:
        """The rules of a grammar inside, under names of their own; of equal ones, once."""
        from deepinfer_grammar.front import rules_of

        if (kind, text) in self._inner_names:
            return Reference(self._inner_names[kind, text])
        try:
            inner = rules_of(_KINDS[kind], text)
        except GrammarFault as error:
            raise SchemaFault(
                error.message, f"{path}/{_GRAMMARS[kind]}", hint=error.hint
            ) from error
        prefix = self.grammar.fresh("inner") + "_"
        for name, rule in inner.rules.items():
            self.grammar.add(prefix + name, renamed(rule, prefix))
        self._inner_names[kind, text] = prefix + inner.start
        self.inner[prefix + inner.start] = (_KINDS[kind], text, f"{path}/{_GRAMMARS[kind]}")
        return Reference(prefix + inner.start)
