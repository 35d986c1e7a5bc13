"""What does a configuration file say?"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from deepinfer_core.config.origins import Assignment, Origin
from deepinfer_core.config.schema import dotted
from deepinfer_core.errors import ConfigError

__all__ = ["flatten", "read_file"]


def read_file(file: Path) -> list[Assignment]:
    """Read a TOML or YAML file.

    Args:
        file: ends in ``.toml``, ``.yaml`` or ``.yml``.

    Raises:
        ConfigError: it cannot be read or parsed, is no table, or repeats a key.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"configuration file {file} cannot be read: {reason}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"configuration file {file} is not UTF-8 text") from error
    data = _parse(file, text)
    return [
        Assignment(path, value, Origin("file", f"{file}:{dotted(path)}"))
        for path, value in flatten(data)
    ]


def flatten(data: Mapping[str, Any], prefix: tuple[str, ...] = ()) -> Iterator[tuple[Any, Any]]:
    """Leaves of nested tables, with their key paths. An empty table is a leaf."""
    for name, value in data.items():
        path = (*prefix, str(name))
        if isinstance(value, Mapping) and value:
            yield from flatten(value, path)
        else:
            yield path, value


def _parse(file: Path, text: str) -> Mapping[str, Any]:
    suffix = file.suffix.lower()
    if suffix == ".toml":
        try:
            return tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            # Beside syntax errors: a number with thousands of digits, brackets nested as deeply.
            raise ConfigError(f"configuration file {file} is not valid TOML: {error}") from error
    if suffix in (".yaml", ".yml"):
        return _parse_yaml(file, text)
    raise ConfigError(
        f"configuration file {file} has the ending {suffix or 'of no kind'!r}",
        hint="use .toml, .yaml or .yml",
    )


def _parse_yaml(file: Path, text: str) -> Mapping[str, Any]:
    import yaml

    class UniqueKeys(yaml.SafeLoader):
        """The plain loader lets the last of two equal keys win, without a word."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            names = [str(key.value) for key, _ in node.value]
            repeated = {name for name in names if names.count(name) > 1}
            if repeated:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {min(repeated)!r} stands twice", node.start_mark
                )
            return super().construct_mapping(node, deep)

        def compose_node(self, parent: Any, index: Any) -> Any:
            # A value that holds itself, or repeats itself a billion times, needs an alias.
            parser: Any = self
            if parser.check_event(yaml.events.AliasEvent):
                alias = parser.peek_event()
                raise yaml.composer.ComposerError(
                    None, None, f"alias *{alias.anchor}: write the value out", alias.start_mark
                )
            return super().compose_node(parent, index)

    try:
        data = yaml.load(text, UniqueKeys)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        line = " ".join(str(error).split())
        raise ConfigError(f"configuration file {file} is not valid YAML: {line}") from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(
            f"configuration file {file} holds a {type(data).__name__}, expected a table of keys"
        )
    return data
