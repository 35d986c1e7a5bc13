"""Do the options of a component fit its schema, and if not, where does the wrong one stand?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pkgutil import resolve_name
from typing import Any, get_args

from pydantic import ValidationError

from deepinfer_core.config.messages import nearest, plain_reason, value_shown
from deepinfer_core.config.origins import Origin
from deepinfer_core.errors import ConfigError, DeepInferError, PluginFailed
from deepinfer_core.plugin.resolved import build_options
from deepinfer_core.plugin.specs import ComponentSpec

__all__ = ["Place", "options_problem"]

Place = tuple[str, ...]
"""Where a value lies within the options; empty: all of them."""


def options_problem(
    spec: ComponentSpec,
    settings: Mapping[str, Any],
    key_of: Callable[[Place], str],
    origins: Mapping[str, Origin],
) -> DeepInferError | None:
    """What is wrong with options; None if nothing is.

    Args:
        spec: names the schema.
        settings: the options as they were given.
        key_of: the dotted key of a place among them, as the user wrote it.
        origins: by such keys, where values come from.
    """
    try:
        build_options(spec, settings)
    except PluginFailed as error:
        return error
    except ValidationError as error:
        return _explain(spec, error, key_of, origins)
    except ValueError as error:
        return ConfigError(f"{key_of(())}: {error}")
    return None


def _explain(
    spec: ComponentSpec,
    error: ValidationError,
    key_of: Callable[[Place], str],
    origins: Mapping[str, Origin],
) -> ConfigError:
    items = error.errors(include_url=False)
    # A misspelt key explains why another one is missing.
    item = next((one for one in items if one["type"] == "extra_forbidden"), items[0])
    place = tuple(str(part) for part in item["loc"])
    key = key_of(place)
    source = _source(key, origins)
    if item["type"] == "extra_forbidden":
        fields = sorted(_fields_at(resolve_name(spec.options), place[:-1]))
        close = nearest(place[-1], fields)
        hint = f"did you mean {', '.join(close)}?" if close else f"options: {', '.join(fields)}"
        return ConfigError(f"{spec.name} has no option {key} (from {source})", hint=hint)
    if item["type"] == "missing":
        hint = f"--set {key}=VALUE, or the same key in the configuration file"
        if any(part.isdecimal() for part in key.split(".")):
            hint = f"write {place[-1]} into that entry of the configuration file"
        return ConfigError(f"{spec.name} needs {key}, which is not set", hint=hint)
    return ConfigError(f"{key}{value_shown(item)} (from {source}): {plain_reason(item)}")


def _fields_at(schema: Any, place: Place) -> Sequence[str]:
    """Names that the schema knows at a place: its own, or those of a table within it."""
    for part in place:
        if not part.isdecimal():
            field = getattr(schema, "model_fields", {}).get(part)
            schema = next(iter(_schemas_in(field.annotation)), None) if field else None
    return tuple(getattr(schema, "model_fields", ()))


def _schemas_in(annotation: Any) -> Iterator[Any]:
    if hasattr(annotation, "model_fields"):
        yield annotation
    for inner in get_args(annotation):
        yield from _schemas_in(inner)


def _source(key: str, origins: Mapping[str, Origin]) -> str:
    """Where a value comes from; a table whose keys do not fit together, from where they do."""
    below = [str(origin) for name, origin in origins.items() if name.startswith(f"{key}.")]
    if below:
        return ", ".join(dict.fromkeys(below))
    while key and key not in origins:  # within a list, which comes from one place as a whole
        key = key.rpartition(".")[0]
    return str(origins.get(key, Origin("default")))
