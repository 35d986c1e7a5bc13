"""Which keys open the server, and whose is each?

A key stands in a file or in the environment, never on a command line, where others could read it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from deepinfer_core.config.server import ServerSettings
from deepinfer_core.errors import ConfigError

__all__ = ["read_keys"]

_LABEL = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SHORTEST_KEY = 8
_FORM = "write label:key, e.g. alice:sk-4f1c..., one a line; # begins a comment line"


def read_keys(
    settings: ServerSettings, environ: Mapping[str, str] | None = None
) -> Mapping[str, str]:
    """Key by label, of file and environment together; empty: the server asks for none.

    Args:
        settings: names the places.
        environ: None reads the process environment.

    Raises:
        ConfigError: a place that is named has no keys or cannot be read, or a label or a key stands
            twice. No message repeats a key.
    """
    found: dict[str, str] = {}
    for place, text in _texts(settings, os.environ if environ is None else environ):
        pairs = list(_pairs(place, text))
        if not pairs:
            raise ConfigError(f"{place} has no keys", hint=_FORM)
        for label, key in pairs:
            if label in found:
                raise ConfigError(
                    f"{place} has a second key for {label}", hint="one label, one key"
                )
            if key in found.values():
                raise ConfigError(f"{place} gives {label} the key of another label")
            found[label] = key
    return found


def _texts(settings: ServerSettings, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each place with what it holds."""
    if settings.keys_file is not None:
        place = f"server.keys_file {settings.keys_file}"
        try:
            yield place, Path(settings.keys_file).read_text(encoding="utf-8")
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ConfigError(f"{place} cannot be read: {reason}") from error
        except UnicodeDecodeError:
            # From nothing: the error holds the bytes.
            raise ConfigError(f"{place} is not UTF-8 text") from None
    if settings.key_environment is not None:
        place = f"server.key_environment {settings.key_environment}"
        text = environ.get(settings.key_environment)
        if text is None:
            raise ConfigError(f"{place} is not set", hint=f"export it; {_FORM}")
        yield place, text


def _pairs(place: str, text: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("#"):
            continue
        for pair in line.split():
            label, separator, key = pair.partition(":")
            if not separator or not _LABEL.fullmatch(label):
                raise ConfigError(
                    f"line {number} of {place} is not of the form label:key", hint=_FORM
                )
            if len(key) < _SHORTEST_KEY:
                raise ConfigError(
                    f"the key of {label} in {place} has {len(key)} characters",
                    hint=f"take {_SHORTEST_KEY} at least; openssl rand -hex 24 makes a good one",
                )
            yield label, key
