"""Can this configuration run here? Answered before any weight is read.

Each check looks at one side of the question and returns a finding; all of them run, so that one
call shows everything that stands in the way.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deepinfer_core.cli.memory_check import check_memory, configured_needs
from deepinfer_core.cli.output import complain, print_json, print_table
from deepinfer_core.cli.parser import add_settings_arguments, settings_from
from deepinfer_core.cli.store_check import check_store_opens
from deepinfer_core.errors import DeepInferError
from deepinfer_core.interfaces.kinds import PROVEN

if TYPE_CHECKING:
    from deepinfer_core.config import LoadedSettings
    from deepinfer_core.plugin.resolution import Resolution

__all__ = ["CHECKS", "Check", "Finding", "add_arguments", "run"]

_NOTHING_USABLE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found.

    Attributes:
        name: key of ``data`` in the JSON output.
        table: rows for a person, with a header; empty if there is nothing to show.
        data: the same for a program.
        problems: what keeps the configuration from running.
        warnings: what is wrong and does not.
    """

    name: str
    table: list[tuple[str, ...]]
    data: Mapping[str, Any]
    problems: tuple[DeepInferError, ...] = field(default=())
    warnings: tuple[str, ...] = field(default=())


Check = Callable[["LoadedSettings", "Resolution"], Finding]


def check_components(loaded: LoadedSettings, resolution: Resolution) -> Finding:
    """Is there a usable component for each slot, and are the required plugins there?"""
    report = resolution.report
    table: list[tuple[str, ...]] = [("slot", "component", "distribution", "version")]
    for choice in report.slots:
        if choice.picked is None:
            table.append((choice.wish.title, "none", "", ""))
            continue
        plugin = choice.picked.offer.plugin
        name = choice.picked.spec.name
        table.append((choice.wish.title, name, plugin.distribution, plugin.version))
    return Finding(
        name="components",
        table=table,
        data={"device": loaded.settings.device, "picked": report.picked()},
        problems=report.problems,
    )


def check_strict(loaded: LoadedSettings, resolution: Resolution) -> Finding:
    """What is still to be shown of the properties that ``strict`` asks for?

    The proof needs the weights, so it is left to loading.
    """
    strict = loaded.settings.strict
    promised = "every component promises it"
    table = [
        (name, f"{promised}, and proves it when the engine loads" if name in PROVEN else promised)
        for name in strict
    ]
    return Finding(
        name="strict",
        table=[("strict", "held how"), *table] if table else [],
        data={"asked": list(strict), "proven_at_load": [n for n in strict if n in PROVEN]},
    )


CHECKS: tuple[Check, ...] = (check_components, check_strict, check_memory, check_store_opens)
"""All checks, in the order of their tables."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_settings_arguments(parser)
    parser.add_argument("--json", action="store_true", help="the same as data")


def run(args: argparse.Namespace) -> int:
    """Print what was found; 0 if nothing stands in the way, otherwise 2."""
    from deepinfer_core.config import resolve_components

    loaded = settings_from(args)
    resolution = resolve_components(loaded, configured_needs(loaded))
    findings = [check(loaded, resolution) for check in CHECKS]
    problems = [problem for finding in findings for problem in finding.problems]
    warnings = [*resolution.report.warnings, *(w for one in findings for w in one.warnings)]
    if args.json:
        data: dict[str, Any] = {finding.name: finding.data for finding in findings}
        data["warnings"] = warnings
        data["problems"] = [
            {"code": p.code, "message": p.message, "hint": p.hint} for p in problems
        ]
        print_json(data)
    else:
        for number, finding in enumerate(shown for shown in findings if shown.table):
            if number:
                print()
            print_table(finding.table)
    for warning in warnings:
        complain(warning, "", kind="warning")
    for problem in problems:
        complain(problem.message, problem.hint)
    return _NOTHING_USABLE if problems else 0
