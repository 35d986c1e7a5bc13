"""Which key paths does the schema have, and what type stands at the end of one?

Derived from the settings classes, so that names in files, in the environment and in suggestions
cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import get_args

from pydantic import BaseModel

from deepinfer_core.config.settings import Settings

__all__ = ["FREE_FORM", "Path", "dotted", "is_free_form", "key_paths", "takes_text_only"]

Path = tuple[str, ...]

FREE_FORM = frozenset({"options", "protocol_options"})
"""Keys whose tables belong to components; what is below them, only a component's schema knows."""


def dotted(path: Path) -> str:
    """``("engine", "seed")`` as ``engine.seed``."""
    return ".".join(path)


@cache
def key_paths() -> dict[Path, object]:
    """Every leaf of the schema with its annotation."""
    return dict(_walk(Settings, ()))


def is_free_form(path: Path) -> bool:
    """Whether a path lies inside some component's options."""
    return any(
        path[:end] in key_paths() and path[end - 1] in FREE_FORM for end in range(1, len(path))
    )


def takes_text_only(path: Path) -> bool:
    """Whether a key holds text, so that ``7`` is text there and not a number."""
    annotation = key_paths().get(path)
    return annotation is str or set(get_args(annotation)) == {str, type(None)}


def takes_nothing(path: Path) -> bool:
    """Whether ``none`` is a value of this key."""
    return type(None) in get_args(key_paths().get(path))


def _walk(model: type[BaseModel], prefix: Path) -> Iterator[tuple[Path, object]]:
    for name, field in model.model_fields.items():
        section = next(
            (
                part
                for part in (field.annotation, *get_args(field.annotation))
                if isinstance(part, type) and issubclass(part, BaseModel)
            ),
            None,
        )
        if section is None:
            yield (*prefix, name), field.annotation
        else:
            yield from _walk(section, (*prefix, name))
