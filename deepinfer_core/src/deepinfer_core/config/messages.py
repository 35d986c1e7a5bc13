"""How is a rejected value explained: which key, what was found, from where, what is allowed?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from deepinfer_core.config.origins import Origin
from deepinfer_core.config.schema import Path, dotted, key_paths
from deepinfer_core.errors import ConfigError

__all__ = ["explain", "nearest", "plain_reason", "short_value"]

_LONGEST_VALUE = 80
"""Characters of a rejected value that a message repeats."""

_ABSENT_HERE: Mapping[Path, str] = {
    ("engine", "replay"): 'this version has no bounded replay; only "off" is allowed',
}


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
        text = short_value(item["input"])
        reason = _ABSENT_HERE.get(path) or plain_reason(item)
        problem = f"{dotted(path)} = {text} (from {source}): {reason}"
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
    """Pydantic's sentence without its opening words."""
    if item["type"] == "model_type":
        return "expected a table of keys"
    text: str = item["msg"]
    for opening, replacement in (("Input should be ", "expected "), ("Value error, ", "")):
        if text.startswith(opening):
            return replacement + text.removeprefix(opening)
    return text


def short_value(value: object) -> str:
    """A value as a message repeats it, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"
