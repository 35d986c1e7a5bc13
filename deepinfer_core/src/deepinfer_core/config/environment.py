"""What do ``DEEPINFER_*`` environment variables say?

This module is the only one that reads settings from it. ``DEEPINFER_ENGINE__MAX_NUM_SEQS`` sets
``engine.max_num_seqs``; ``published`` lists the names that are spelt otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path as FilePath

from deepinfer_core.config.origins import Assignment, Origin
from deepinfer_core.config.published import ABSENT, ALIASES
from deepinfer_core.config.schema import Path, dotted, is_free_form, key_paths
from deepinfer_core.config.text import parse_text
from deepinfer_core.errors import ConfigError

__all__ = ["PREFIX", "cache_home", "read_environment", "variable_name", "variables"]

PREFIX = "DEEPINFER_"


def variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """All set variables with our prefix, sorted by name."""
    source = os.environ if environ is None else environ
    return {name: source[name] for name in sorted(source) if name.startswith(PREFIX)}


def cache_home(environ: Mapping[str, str] | None = None) -> FilePath | None:
    """The user's cache folder: ``XDG_CACHE_HOME`` if that is absolute, else ``~/.cache``.

    Source: XDG Base Directory Specification 0.8, which says that relative paths are ignored.

    Returns:
        None if the user has no home.
    """
    named = FilePath((os.environ if environ is None else environ).get("XDG_CACHE_HOME", ""))
    if named.is_absolute():
        return named
    try:
        return FilePath.home() / ".cache"
    except RuntimeError:
        return None


def variable_name(path: Path) -> str:
    """The name that sets a key: ``engine.seed`` gives ``DEEPINFER_ENGINE__SEED``."""
    return PREFIX + "__".join(path).upper()


def read_environment(environ: Mapping[str, str] | None = None) -> list[Assignment]:
    """Turn the variables with our prefix into assignments.

    Raises:
        ConfigError: a name is unknown, or its feature does not exist; two names set one key.
    """
    found: dict[Path, Assignment] = {}
    for name, text in variables(environ).items():
        assignment = _read(name, text)
        earlier = found.setdefault(assignment.path, assignment)
        if earlier is not assignment:
            raise ConfigError(
                f"{earlier.origin} and {assignment.origin} both set {dotted(assignment.path)}",
                hint="set one of them",
            )
    return list(found.values())


def _read(name: str, text: str) -> Assignment:
    short = name.removeprefix(PREFIX)
    origin = Origin("environment", name)
    if short in ABSENT:
        raise ConfigError(
            f"{name} is set, but this version has no {ABSENT[short]}", hint=f"unset {name}"
        )
    alias = ALIASES.get(short)
    if alias is not None:
        value = alias.convert(text) if alias.convert else parse_text(alias.path, text)
        return Assignment(alias.path, value, origin)
    path = tuple(short.lower().split("__"))
    if path not in key_paths() and not is_free_form(path):
        raise ConfigError(f"unknown environment variable {name}", hint=_nearest(name))
    return Assignment(path, parse_text(path, text), origin)


def _nearest(name: str) -> str:
    # Without the prefix, which all names share and which would make strangers look alike.
    close = get_close_matches(name.removeprefix(PREFIX), sorted(_known()), n=3, cutoff=0.6)
    if close:
        return f"did you mean {', '.join(PREFIX + short for short in close)}?"
    return "deepinfer config lists every key; engine.seed is DEEPINFER_ENGINE__SEED"


def _known() -> Iterator[str]:
    yield from ALIASES
    yield from (variable_name(path).removeprefix(PREFIX) for path in key_paths())
