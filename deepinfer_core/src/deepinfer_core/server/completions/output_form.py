"""Which grammar does a body ask for, in whose words ever?

Beside our own ``grammar`` and ``so_args`` there are the words of the public chat interface and of
two other servers. All of them name the same thing, so one body may hold one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from deepinfer_core.engine.checks import shown
from deepinfer_core.errors import RequestError

__all__ = ["FORM_FIELDS", "form_fields"]

_ONE = "all of them name the same thing; give one"
_OWN = ("grammar", "so_args")

_Form = dict[str, Any] | None
"""Fields of a ``GrammarRequest``; None: no form is asked for."""

_TYPES: Mapping[str, tuple[type, ...]] = MappingProxyType(
    {
        "json_schema": (str, dict),
        "regex": (str,),
        "ebnf": (str,),
        "choice": (str, list),
        "structural_tag": (str, dict),
    }
)


def _form(name: str, kind: str, value: object) -> _Form:
    if not isinstance(value, _TYPES[kind]):
        raise RequestError(f"{name} is {shown(value)}", hint=f"it must be the text of a {kind}")
    return {"kind": kind, "grammar": value}


def _json_object(name: str, value: object) -> _Form:
    if not isinstance(value, bool):
        raise RequestError(f"{name} is {shown(value)}", hint=f"{name} must be a boolean")
    return {"kind": "json_object"} if value else None


def _object(name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RequestError(f"{name} is {shown(value)}", hint=f"{name} must be an object")
    return value


def _response_format(name: str, value: object) -> _Form:
    given = _object(name, value)
    match given.get("type"):
        case "text":
            return None
        case "json_object":
            return {"kind": "json_object"}
        case "json_schema":
            holder = _object(f"{name}.json_schema", given.get("json_schema"))
            return _form(f"{name}.json_schema.schema", "json_schema", holder.get("schema"))
        case "regex":
            return _form(f"{name}.regex", "regex", given.get("regex"))
        case "structural_tag":
            return _form(name, "structural_tag", given)
        case other:
            raise RequestError(
                f"{name}.type is {shown(other)}",
                hint="types: text, json_object, json_schema, regex, structural_tag",
            )


def _structured(name: str, value: object) -> _Form:
    given = _object(name, value)
    if unknown := sorted(given.keys() - _STRUCTURED.keys()):
        raise RequestError(
            f"{name} has {', '.join(map(shown, unknown))}",
            hint=f"it takes {', '.join(_STRUCTURED)}",
        )
    return _only(given, _STRUCTURED, f"{name}.")


_Read = str | Callable[[str, object], _Form]
"""A kind of grammar whose text stands in a field, or what reads the field."""

_STRUCTURED: Mapping[str, _Read] = MappingProxyType(
    {
        "json": "json_schema",
        "json_object": _json_object,
        "regex": "regex",
        "choice": "choice",
        "grammar": "ebnf",
        "structural_tag": "structural_tag",
    }
)
"""Members of ``structured_outputs``."""

_WORDS: Mapping[str, _Read] = MappingProxyType(
    {
        "response_format": _response_format,
        "structured_outputs": _structured,
        "guided_json": "json_schema",
        "guided_regex": "regex",
        "guided_choice": "choice",
        "guided_grammar": "ebnf",
        "json_schema": "json_schema",
        "regex": "regex",
        "ebnf": "ebnf",
        "structural_tag": "structural_tag",
    }
)
"""Fields of others."""

FORM_FIELDS = (*_OWN, *_WORDS)
"""Names of all fields that ask for a form of the output."""


def form_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Those that ask for a form, as ``SamplingParams`` takes them.

    Args:
        given: fields of a body that are not null.

    Raises:
        RequestError: there is more than one, or one has not its type.
    """
    own = {name: given[name] for name in _OWN if name in given}
    found = _only(given, _WORDS)
    if own and found is not None:
        raise RequestError(f"{next(iter(own))} and another form were given together", hint=_ONE)
    return own if found is None else {"grammar": found}


def _only(given: Mapping[str, Any], words: Mapping[str, _Read], path: str = "") -> _Form:
    """What the one of some fields says that asks for something."""
    forms: dict[str, _Form] = {}
    for word, read in words.items():
        if (value := given.get(word)) is not None:
            name = path + word
            forms[name] = _form(name, read, value) if isinstance(read, str) else read(name, value)
    asked = [name for name, form in forms.items() if form is not None]
    if len(asked) > 1:
        raise RequestError(f"{' and '.join(asked)} were given together", hint=_ONE)
    return forms[asked[0]] if asked else None
