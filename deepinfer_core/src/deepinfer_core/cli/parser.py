"""How are arguments parsed, and which options do verbs share?"""

from __future__ import annotations

import argparse
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from deepinfer_core.errors import DeepInferError

if TYPE_CHECKING:
    from deepinfer_core.config import LoadedSettings

__all__ = ["Parser", "UsageError", "add_settings_arguments", "settings_from"]


class UsageError(DeepInferError):
    """The arguments cannot be understood."""

    code = "usage_error"


class Parser(argparse.ArgumentParser):
    """A parser whose errors take the form of all others, and whose options are written out."""

    def __init__(self, **options: Any) -> None:
        # Parsers of sub-commands are made by argparse itself, with options of its own.
        super().__init__(**{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing a usage block.

        Raises:
            UsageError: always.
        """
        words = message.partition("unrecognized arguments: ")[2].split()
        known = _options_of(self)
        # An option that another sub-command has is spelled well, and means nothing here.
        wrong = [word.partition("=")[0] for word in words if word.startswith("-")]
        close = [get_close_matches(word, known, n=1) for word in wrong if word not in known]
        meant = ", ".join(one for found in close for one in found)
        raise UsageError(message, hint=f"did you mean {meant}?" if meant else f"{self.prog} --help")


def _options_of(parser: argparse.ArgumentParser) -> list[str]:
    """Its options, and those of its sub-commands."""
    found: list[str] = []
    for action in parser._actions:  # argparse tells nobody otherwise
        found += action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                found += _options_of(inner)
    return found


def add_settings_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of every verb that reads the configuration."""
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="configuration file, TOML or YAML"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="PATH=VALUE",
        help="one value, e.g. engine.seed=1; may be repeated; wins over file and environment",
    )


def settings_from(args: argparse.Namespace) -> LoadedSettings:
    """Load the settings that those options ask for.

    Raises:
        ConfigError: see ``load_settings``.
    """
    from deepinfer_core.config import load_settings

    return load_settings(args.config, args.overrides)
