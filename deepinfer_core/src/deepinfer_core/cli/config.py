"""Which settings hold, and where does each come from?"""

from __future__ import annotations

import argparse

from deepinfer_core.cli.output import print_json, print_table
from deepinfer_core.cli.parser import add_settings_arguments, settings_from

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "action",
        nargs="?",
        default="show",
        choices=("show", "validate", "schema"),
        help="show (the default) prints every value with its origin; validate only reads and "
        "checks; schema prints the JSON schema of a configuration file",
    )
    add_settings_arguments(parser)
    parser.add_argument("--json", action="store_true", help="show as data")


def run(args: argparse.Namespace) -> int:
    """Print the settings, the schema, or that all is well."""
    if args.action == "schema":
        from deepinfer_core.config.settings import Settings

        print_json(Settings.model_json_schema())
        return 0
    loaded = settings_from(args)
    if args.action == "validate":
        given = sum(origin.kind != "default" for origin in loaded.origins.values())
        print(f"valid: {given} of {len(loaded.origins)} values are set, the others are defaults")
        return 0
    from deepinfer_core.config.loading import value_at, value_text

    values = [(key, value_at(loaded.settings, key), loaded.origins[key]) for key in loaded.origins]
    if args.json:
        print_json(
            [
                {"key": key, "value": value, "origin": {"kind": origin.kind, "name": origin.name}}
                for key, value, origin in values
            ]
        )
        return 0
    rows = [(key, value_text(value), str(origin)) for key, value, origin in values]
    print_table([("key", "value", "origin"), *rows])
    return 0
