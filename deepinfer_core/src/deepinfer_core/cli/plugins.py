"""Which plugins are installed, and which component is picked for each slot, and why?"""

from __future__ import annotations

import argparse
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from deepinfer_core.cli.output import print_json, print_table
from deepinfer_core.cli.parser import UsageError, add_settings_arguments, settings_from

if TYPE_CHECKING:
    from deepinfer_core.plugin.choice import Row
    from deepinfer_core.plugin.loading import PluginStatus
    from deepinfer_core.plugin.probing import Candidate
    from deepinfer_core.plugin.report import Report

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_settings_arguments(parser)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="the same as data")
    shape.add_argument("--why", metavar="NAME", help="all about one plugin or component")


def run(args: argparse.Namespace) -> int:
    """Print the tables. A slot that nothing can fill is shown, and is not an error here."""
    from deepinfer_core.config import resolve_components
    from deepinfer_core.config.resolution import host_candidates
    from deepinfer_core.interfaces.kinds import SERVED_SLOTS

    loaded = settings_from(args)
    resolution = resolve_components(loaded)
    served = host_candidates(loaded.settings, resolution.plugins.offers, SERVED_SLOTS)
    report = replace(resolution.report, served=tuple(served))
    if args.json:
        print_json(report.to_json())
    elif args.why:
        _explain(report, args.why)
    else:
        print_table(report.plugin_table())
        print()
        print_table(report.slot_table())
        for problem in report.problems:
            print(f"\nproblem: {problem.message}")
            if problem.hint:
                print(f"hint: {problem.hint}")
    return 0


def _explain(report: Report, name: str) -> None:
    plugins = [item for item in report.plugins if item.plugin.answers_to(name)]
    slots = [
        (choice.wish.title, row)
        for choice in report.slots
        for row in choice.rows
        if row.candidate.spec.name == name
    ]
    served = [item for item in report.served if item.spec.name == name]
    if not plugins and not slots and not served:
        known = {item.plugin.name for item in report.plugins}
        known |= {row.candidate.spec.name for choice in report.slots for row in choice.rows}
        known |= {item.spec.name for item in report.served}
        close = get_close_matches(name, sorted(known), n=3, cutoff=0.5) or sorted(known)
        raise UsageError(
            f"no plugin or component is called {name!r}", hint=f"there is {', '.join(close)}"
        )
    for number, status in enumerate(plugins):
        if number:
            print()
        _explain_plugin(status, report)
    explained: set[str] = set()
    for title, row in slots:
        is_first = row.candidate.offer.key not in explained
        if is_first and (explained or plugins):
            print()
        _explain_row(title, row, is_first=is_first)
        explained.add(row.candidate.offer.key)
    for item in served:
        if explained or plugins:
            print()
        _print_component(item)
        print(f"{item.spec.kind}: {item.judgement}{f', {item.reason}' if item.reason else ''}")


def _explain_plugin(status: PluginStatus, report: Report) -> None:
    plugin = status.plugin
    offered = {
        f"{row.candidate.spec.kind} {row.candidate.spec.name}"
        for choice in report.slots
        for row in choice.rows
        if row.candidate.offer.plugin == plugin
    }
    offered |= {
        f"{item.spec.kind} {item.spec.name}"
        for item in report.served
        if item.offer.plugin == plugin
    }
    print_table(
        [
            ("plugin", plugin.name),
            ("distribution", f"{plugin.distribution} {plugin.version}"),
            ("entry point", plugin.value),
            ("state", status.state),
            ("reason", status.reason or "-"),
            ("load time", f"{status.load_s * 1000:.1f} ms"),
            ("offers", ", ".join(sorted(offered)) or "-"),
        ]
    )
    if status.details:
        print(f"\n{status.details.rstrip()}")


def _explain_row(title: str, row: Row, *, is_first: bool) -> None:
    if is_first:
        _print_component(row.candidate)
    print(f"{title}: {row.state}{f', {row.reason}' if row.reason else ''}")


def _print_component(candidate: Candidate) -> None:
    spec, plugin = candidate.spec, candidate.offer.plugin
    print_table(
        [
            ("component", f"{spec.kind} {spec.name}"),
            ("distribution", f"{plugin.distribution} {plugin.version}"),
            ("contract", str(spec.contract)),
            ("factory", spec.factory),
            ("probe", spec.probe or "-"),
            ("options", spec.options or "-"),
            ("promises", ", ".join(f"{n} {p}" for n, p in spec.properties.items()) or "-"),
            ("fix", candidate.fix or "-"),
        ]
    )
    if candidate.details:
        print(f"\n{candidate.details.rstrip()}\n")
