"""Which settings hold, and where does each value come from?

Defaults < file < ``DEEPINFER_*`` environment < ``--set path=value`` < keywords of the Python API.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from deepinfer_core.config.environment import read_environment
from deepinfer_core.config.files import flatten, read_file
from deepinfer_core.config.messages import explain
from deepinfer_core.config.origins import Assignment, Origin
from deepinfer_core.config.schema import Path, dotted, is_free_form, key_paths
from deepinfer_core.config.settings import Settings
from deepinfer_core.config.text import parse_text
from deepinfer_core.errors import ConfigError

__all__ = ["LoadedSettings", "load_settings"]


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Valid settings.

    Attributes:
        settings: the values.
        origins: by dotted key path, the source of every value.
    """

    settings: Settings
    origins: Mapping[str, Origin]

    def to_json(self) -> str:
        """All of it for another process, which must not read files and environment again."""
        origins = {path: [origin.kind, origin.name] for path, origin in self.origins.items()}
        return json.dumps({"settings": self.settings.model_dump(mode="json"), "origins": origins})

    @classmethod
    def from_json(cls, text: str) -> LoadedSettings:
        """The same again."""
        data = json.loads(text)
        origins = {path: Origin(*parts) for path, parts in data["origins"].items()}
        return cls(Settings.model_validate(data["settings"]), origins)


def load_settings(
    file: FilePath | None = None,
    overrides: Sequence[str] = (),
    *,
    environ: Mapping[str, str] | None = None,
    api: Mapping[str, object] | None = None,
) -> LoadedSettings:
    """Read all sources, merge and validate them.

    Args:
        file: TOML or YAML file, or None.
        overrides: texts ``path=value``; a later one wins over an earlier one.
        environ: None reads the process environment.
        api: values by dotted key path (``{"engine.seed": 1}``), or nested tables.

    Raises:
        ConfigError: some source cannot be read, or a key or value is not allowed. The message
            names each key, what was found and where it came from.
    """
    assignments = read_file(file) if file is not None else []
    assignments += read_environment(environ)
    assignments += [_override(text) for text in overrides]
    assignments += _keywords(api or {})
    tree, sources = _merge(assignments)
    try:
        settings = Settings.model_validate(tree)
    except ValidationError as error:
        raise explain(error, sources) from error
    return LoadedSettings(settings, _origins(settings, sources))


def _override(text: str) -> Assignment:
    name, separator, value = text.partition("=")
    path = tuple(part.strip() for part in name.split("."))
    if not separator or not all(path):
        raise ConfigError(
            f"--set {text!r} is not of the form path=value", hint="e.g. --set engine.seed=1"
        )
    value = value.strip()
    return Assignment(path, parse_text(path, value), Origin("set", f"--set {dotted(path)}"))


def _keywords(api: Mapping[str, object]) -> list[Assignment]:
    return [
        Assignment(tuple(dotted(path).split(".")), value, Origin("api", f"{dotted(path)}="))
        for path, value in flatten(api)
    ]


def _not_a_table(
    above: Path, item: Assignment, found: object, sources: Mapping[Path, Origin]
) -> ConfigError:
    """A key asks for a table where another source gave something else."""
    if isinstance(found, list):
        return ConfigError(
            f"{item.origin} names an entry of {dotted(above)}, which is a list"
            f" (from {sources[above]})",
            hint=f"lists are set as a whole: --set '{dotted(above)}=[...]', or edit the file",
        )
    return ConfigError(
        f"{dotted(above)} is a table, but {sources[above]} gives it one value",
        hint=f"{item.origin} sets {dotted(item.path)} in that table",
    )


def _merge(assignments: Iterable[Assignment]) -> tuple[dict[str, Any], dict[Path, Origin]]:
    """Nested tables of the last value of each key, and each key's source."""
    tree: dict[str, Any] = {}
    sources: dict[Path, Origin] = {}
    for item in assignments:
        node = tree
        for depth, name in enumerate(item.path[:-1], start=1):
            node = node.setdefault(name, {})
            if not isinstance(node, dict):
                above = item.path[:depth]
                raise _not_a_table(above, item, node, sources)
        if item.value == {} and isinstance(node.get(item.path[-1]), dict):
            continue
        node[item.path[-1]] = item.value
        # A whole value replaces what earlier layers put below it.
        for path in [p for p in sources if p[: len(item.path)] == item.path]:
            del sources[path]
        sources[item.path] = item.origin
        if isinstance(item.value, Mapping):
            sources |= dict.fromkeys(
                (path for path, _ in flatten(item.value, item.path)), item.origin
            )
    return tree, sources


def _origins(settings: Settings, sources: Mapping[Path, Origin]) -> dict[str, Origin]:
    default = Origin("default")
    paths = [path for path in key_paths() if _exists(settings, path)]
    paths += [path for path in sources if is_free_form(path)]
    return {dotted(path): sources.get(path, default) for path in paths}


def _exists(settings: Settings, path: Path) -> bool:
    """Whether a key has a place; keys of a slot have none until the slot is mentioned."""
    node: object = settings
    for name in path[:-1]:
        node = getattr(node, name)
        if node is None:
            return False
    return True


def value_at(settings: Settings, path: str) -> Any:
    """The value at a dotted key path, option keys included."""
    node: Any = settings
    for name in path.split("."):
        node = node[name] if isinstance(node, Mapping) else getattr(node, name)
    return node


def value_text(value: object) -> str:
    """A value as reports show it, in the spelling that ``--set`` reads."""
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    return json.dumps(value, default=str)
