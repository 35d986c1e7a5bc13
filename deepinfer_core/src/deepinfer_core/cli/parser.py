"""How are arguments parsed, and which options do verbs share?"""

from __future__ import annotations

import argparse
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
        raise UsageError(message, hint=f"{self.prog} --help")


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
