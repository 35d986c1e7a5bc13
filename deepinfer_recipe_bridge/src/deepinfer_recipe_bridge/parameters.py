"""Which texts may stand for the value of a tool's parameter?

A call writes a text value raw, marked ``string="true"``, and any other value as JSON, marked
``string="false"``. So a schema is split: what it says of texts becomes a form of raw text, the rest
stays a schema. A schema whose parts cannot be told apart stays whole and is written as JSON, a text
in quotes included, so that it is enforced as it stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from deepinfer_recipe_bridge import tags
from deepinfer_recipe_bridge.tags import Format

__all__ = ["ParameterSchemas"]

_NOTES = frozenset(
    (
        "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly",
        "$comment", "contentEncoding", "contentMediaType", "contentSchema", "nullable",
    )
)  # fmt: skip
_JOINING = frozenset(("allOf", "oneOf", "not", "if", "then", "else", "$dynamicRef", "$id"))
_TEXT_WORDS = frozenset(("pattern", "minLength", "maxLength", "format"))
_TYPES = ("string", "number", "boolean", "null", "object", "array")
_VALUES = ("const", "enum", "default", "examples")
_MOST_REFERENCES = 100
_ROOT = "parameters"


@dataclass(frozen=True, slots=True)
class ParameterSchemas:
    """Schemas of one tool's parameters.

    Attributes:
        root: of all of them, which references start from.
    """

    root: Mapping[str, Any]

    def forms(self, schema: Any) -> Format:
        """What may follow the name of a parameter: the mark, and the value."""
        raw: list[Format] = []
        rest: list[Any] = []
        for is_text, one in self._parts(schema, 0):
            (raw if is_text else rest).append(one)
        forms = []
        if raw:
            forms.append(tags.sequence(tags.text(' string="true">'), tags.either(raw)))
        if rest:
            mark = tags.text(' string="false">')
            forms.append(tags.sequence(mark, tags.either(map(self._as_json, rest))))
        return tags.either(forms)

    def _parts(self, schema: Any, depth: int) -> Iterator[tuple[bool, Any]]:
        """Forms of raw text (True) and schemas of JSON (False) that together are a schema."""
        if schema is True:
            schema = {}
        if not isinstance(schema, dict):
            yield False, schema
            return
        words = schema.keys() - _NOTES
        if "$ref" in words:
            target = self._target(schema["$ref"]) if words == {"$ref"} else None
            if target is None or depth >= _MOST_REFERENCES:
                yield False, schema
            else:
                yield from self._parts(target, depth + 1)
        elif words == {"anyOf"} and isinstance(schema["anyOf"], list) and schema["anyOf"]:
            for branch in schema["anyOf"]:
                yield from self._parts(branch, depth + 1)
        elif words & _JOINING or "anyOf" in words:
            yield False, schema
        elif "const" in words or "enum" in words:
            yield from _of_values(schema, words)
        else:
            yield from _of_types(schema, words)

    def _target(self, reference: Any) -> Any:
        """What a reference into this document points at; None: nothing that is known here."""
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return None
        node: Any = self.root
        for part in reference[2:].split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, Mapping) or key not in node or "%" in key:
                return None
            node = node[key]
        return node

    def _as_json(self, schema: Any) -> Format:
        """A schema that stands alone; references keep what they refer to."""
        moved = _moved(schema)
        if moved == schema or not isinstance(moved, dict):
            return tags.json_value(schema)
        return tags.json_value({**moved, "$defs": {_ROOT: _moved(dict(self.root))}})


def _of_values(schema: Mapping[str, Any], words: set[str]) -> Iterator[tuple[bool, Any]]:
    values = [schema["const"]] if "const" in words else schema["enum"]
    if words - {"const", "enum", "type"} or words >= {"const", "enum"}:
        yield False, schema
        return
    wanted = schema.get("type", list(_TYPES))
    wanted = [wanted] if isinstance(wanted, str) else wanted
    if not isinstance(values, list) or not isinstance(wanted, list):
        yield False, schema
        return
    others = [value for value in values if not isinstance(value, str)]
    if "string" in wanted:
        yield from ((True, tags.text(value)) for value in values if isinstance(value, str))
    if others:
        yield False, {**{key: schema[key] for key in words & {"type"}}, "enum": others}


def _of_types(schema: Mapping[str, Any], words: set[str]) -> Iterator[tuple[bool, Any]]:
    types = schema.get("type", list(_TYPES))
    types = [types] if isinstance(types, str) else types
    if not isinstance(types, list) or "string" not in types:
        yield False, schema
        return
    rest = [one for one in types if one != "string"]
    form = _raw_text({key: schema[key] for key in words & _TEXT_WORDS})
    if form is None:
        yield False, {**schema, "type": ["string"]}
    else:
        yield True, form
    if rest:
        yield False, {key: schema[key] for key in words - _TEXT_WORDS - {"type"}} | {"type": rest}


def _raw_text(conditions: dict[str, Any]) -> Format | None:
    """Raw text under conditions; None: they are for JSON only."""
    if not conditions:
        return tags.ANY_TEXT
    if conditions.keys() == {"pattern"} and isinstance(conditions["pattern"], str):
        # A pattern may match anywhere in the text.
        return tags.matching(rf"(?s:.)*(?:{conditions['pattern']})(?s:.)*")
    if conditions.keys() <= {"minLength", "maxLength"}:
        least, most = conditions.get("minLength", 0), conditions.get("maxLength", "")
        counts = [one for one in (least, most) if one != ""]
        if all(isinstance(one, int) and not isinstance(one, bool) for one in counts):
            return tags.matching(rf"(?s:.){{{least},{most}}}")
    return None


def _moved(node: Any) -> Any:
    """A copy whose references start from where the whole document is kept."""
    if isinstance(node, list):
        return [_moved(one) for one in node]
    if not isinstance(node, dict):
        return node
    moved = {key: value if key in _VALUES else _moved(value) for key, value in node.items()}
    reference = node.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        moved["$ref"] = f"#/$defs/{_ROOT}{reference[1:]}"
    return moved
