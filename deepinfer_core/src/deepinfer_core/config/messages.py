"""How is a rejected value explained: which key, what was found, from where, what is allowed?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from deepinfer_core.config.origins import Origin
from deepinfer_core.config.schema import Path, dotted, key_paths
from deepinfer_core.errors import ConfigError

__all__ = ["explain", "nearest", "plain_reason", "short_value", "value_shown"]

_LONGEST_VALUE = 80
"""Characters of a rejected value that a message repeats."""

_ABSENT_HERE: Mapping[Path, str] = {
    ("engine", "replay"): 'this version has no bounded replay; only "off" is allowed',
}


_EXPECTED: Mapping[str, str] = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "a table of keys",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
    "list_type": "a list",
    "mapping_type": "a table of keys",
    "model_type": "a table of keys",
    "string_too_short": "text with a length of {min_length} or more",
    "string_type": "text",
    "too_long": "a list of {max_length} or fewer, found {actual_length}",
    "too_short": "a list of {min_length} or more, found {actual_length}",
    "tuple_type": "a list",
}
"""What is allowed, by pydantic's kinds of errors."""


def explain(error: ValidationError, sources: Mapping[Path, Origin]) -> ConfigError:
    """One error for everything that is wrong, in the order of the keys."""
    problems: list[str] = []
    hints: list[str] = []
    for item in error.errors(include_url=False):
        path = _key(item["loc"])
        source = _source(path, sources)
        if item["type"] == "extra_forbidden":
            problems.append(f"unknown key {dotted(path)} (from {source})")
            hints.append(_suggest(path))
            continue
        reason = _ABSENT_HERE.get(path) or plain_reason(item)
        problem = f"{dotted(path)}{value_shown(item)} (from {source}): {reason}"
        # A key that takes one of several types reports each of them.
        if not any(earlier.startswith(f"{dotted(path)} = ") for earlier in problems):
            problems.append(problem)
    return ConfigError("; ".join(problems), hint=next((hint for hint in hints if hint), ""))


def nearest(name: str, known: Sequence[str], count: int = 3) -> list[str]:
    """Names that resemble ``name``, best first."""
    return get_close_matches(name, list(known), n=count, cutoff=0.6)


def _key(location: Sequence[int | str]) -> Path:
    """The key of an error: its location up to where the schema ends."""
    path: Path = ()
    known = set(key_paths())
    for part in location:
        if path in known:
            break
        path = (*path, str(part))
    return path


def _source(path: Path, sources: Mapping[Path, Origin]) -> Origin:
    for end in range(len(path), 0, -1):
        if path[:end] in sources:
            return sources[path[:end]]
    below = (origin for key, origin in sources.items() if key[: len(path)] == path)
    return next(below, Origin("default"))


def _suggest(path: Path) -> str:
    """A key of that very name, else the nearest in the same table, else the nearest anywhere."""
    parent = path[:-1]
    depth = len(parent)
    here = {key[depth] for key in key_paths() if key[:depth] == parent and len(key) > depth}
    close = [dotted(key) for key in key_paths() if key[-1] == path[-1]] if not parent else []
    if not close:
        close = [dotted((*parent, name)) for name in nearest(path[-1], sorted(here))]
    if not close:
        close = [dotted(key) for key in key_paths() if nearest(path[-1], [key[-1]], 1)][:3]
    if not close and not here:
        close = nearest(dotted(path), [dotted(key) for key in key_paths()])
    if close:
        return f"did you mean {', '.join(close)}?"
    return f"keys here: {', '.join(sorted(here))}" if here else "deepinfer config lists all keys"


def plain_reason(item: Any) -> str:
    """What is allowed, in words of a configuration; else pydantic's without its opening words."""
    if item["type"] in _EXPECTED:
        limits = {name: _short_number(one) for name, one in item.get("ctx", {}).items()}
        return "expected " + _EXPECTED[item["type"]].format(**limits)
    text: str = item["msg"]
    for opening, replacement in (("Input should be ", "expected "), ("Value error, ", "")):
        if text.startswith(opening):
            return replacement + text.removeprefix(opening)
    return text


def _short_number(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def value_shown(item: Any) -> str:
    """The rejected value as a message repeats it; nothing of a table whose values do not fit."""
    if item["type"] == "value_error" and isinstance(item["input"], Mapping):
        return ""
    return f" = {short_value(item['input'])}"


def short_value(value: object) -> str:
    """A value as a message repeats it, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"
