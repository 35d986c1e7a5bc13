"""How does a service answer over HTTP, the more users ask or the more requests come?

Nothing is loaded here: the service runs elsewhere and may be anybody's. The generator has this
process for itself, watches how busy it is, and says so where its figures may be its own.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepinfer_core.cli.output import check_writable, complain, print_json, print_table
from deepinfer_core.cli.parser import UsageError
from deepinfer_core.cli.service_call import key_in

if TYPE_CHECKING:
    from deepinfer_core.bench.serve.campaign import Campaign
    from deepinfer_core.bench.serve.loads import Level
    from deepinfer_core.bench.serve.outcome import Outcome

__all__ = ["add_serve_action"]

_USERS = "1,2,4,8"
_TIMEOUT_S = 600.0


def add_serve_action(actions: argparse._SubParsersAction[Any]) -> None:
    """Declare the action among those of ``bench``."""
    parser = actions.add_parser("serve", help="a service over HTTP, under one load after the other")
    _add_target(parser)
    _add_load(parser)
    add = parser.add_argument
    add("--json", action="store_true", help="one object a figure")
    add("--out", type=Path, metavar="FILE", help="write these objects to a file as well")
    add(
        "--plot",
        type=Path,
        metavar="FILE",
        help="throughput against the speed of a user, .png, .svg or .pdf",
    )
    parser.set_defaults(act=_run)


def _add_target(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--url", default="http://127.0.0.1:8000", help="of the service; default %(default)s")
    add("--endpoint", choices=("chat", "completions"), default="chat", help="default chat")
    add("--model", metavar="NAME", help="default: the first one that the service lists")
    add("--key-file", type=Path, metavar="FILE", help="whose first line is the key")
    add("--timeout", type=float, default=_TIMEOUT_S, metavar="S", help="of a request; default 600")
    add("--hardware", default="", metavar="TEXT", help="of the service, for the figures")


def _add_load(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    loads = parser.add_mutually_exclusive_group()
    loads.add_argument(
        "--users",
        default=_USERS,
        metavar="N,N",
        help=f"closed loads: so many users who ask again at once; default {_USERS}",
    )
    loads.add_argument(
        "--rate", metavar="R,R", help="open loads: so many visitors a second, at random times"
    )
    add("--requests", type=int, metavar="N", help="of each load; default 8 of a user, at least 32")
    add("--alone", type=int, default=4, metavar="N", help="of one user alone before; default 4")
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--input-len", default="128", metavar="TOKENS", help="of random prompts; default 128"
    )
    source.add_argument("--prompts", type=Path, metavar="FOLDER", help="of JSON-lines files")
    add("--kinds", default="", metavar="KIND,KIND", help="of those prompts; default: all")
    add("--output-len", default="128", metavar="TOKENS", help="at most; default 128")
    add(
        "--cache",
        choices=("cold", "shared", "warm"),
        default="shared",
        help="what a prefix cache may know: nothing, what the requests of a load share (the "
        "default), or all prompts",
    )
    add("--salt-field", default="", metavar="NAME", help="of bodies; default: text in the prompt")
    add("--body", default="{}", metavar="JSON", help='more of every body: {"ignore_eos": true}')
    add("--seed", type=int, default=0, metavar="N", help="of order, lengths, times; default 0")


def _run(args: argparse.Namespace) -> int:
    campaign = _campaign(args)
    for path in (args.out, args.plot):
        if path is not None:
            check_writable(path)
    if args.plot is not None:
        _check_plot(args.plot)
    from deepinfer_core.bench.serve.campaign import run_campaign

    outcome = run_campaign(campaign)
    found = outcome.to_json()
    if args.out is not None:
        args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if args.plot is not None:
        outcome.draw(args.plot)
    if args.json:
        print_json(found)
    else:
        _print(outcome)
    for text in outcome.warnings:
        complain(text, "the figures may be the generator's own", kind="warning")
    return 0 if all(result.good for result in outcome.results) else 1


def _campaign(args: argparse.Namespace) -> Campaign:
    """Everything that can be refused before the service is asked."""
    for package in ("httptools", "msgspec", "uvloop"):
        _check_installed(package)
    from deepinfer_core.bench.lengths import parse_lengths
    from deepinfer_core.bench.serve.campaign import Campaign
    from deepinfer_core.bench.serve.client import parse_target
    from deepinfer_core.bench.serve.prompt_folder import read_folder
    from deepinfer_core.bench.serve.sweep import Plan

    for name, value, least in (
        ("--requests", args.requests, 1), ("--alone", args.alone, 1), ("--seed", args.seed, 0),
        ("--timeout", args.timeout, 0.001),
    ):  # fmt: skip
        if value is not None and value < least:
            raise UsageError(f"{name} is {value}", hint=f"give {least:g} or more")
    kinds = tuple(kind for kind in args.kinds.split(",") if kind)
    return Campaign(
        target=parse_target(args.url, key_in(args.key_file)),
        endpoint=args.endpoint,
        model=args.model,
        hardware=args.hardware,
        scripts=None if args.prompts is None else tuple(read_folder(args.prompts, kinds)),
        inputs=parse_lengths(args.input_len, "--input-len"),
        outputs=parse_lengths(args.output_len, "--output-len"),
        cache=args.cache,
        salt_field=args.salt_field,
        fields=_fields(args.body),
        timeout_s=args.timeout,
        plan=Plan(levels=_levels(args), requests=args.requests, alone=args.alone, seed=args.seed),
        command=shlex.join(["deepinfer", *sys.argv[1:]]),
    )


def _levels(args: argparse.Namespace) -> tuple[Level, ...]:
    from deepinfer_core.bench.serve.loads import Level

    text, name = (args.users, "--users") if args.rate is None else (args.rate, "--rate")
    try:
        values = [int(part) if args.rate is None else float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if not values or not all(0 < value < 1e6 for value in values):
        raise UsageError(f"{name} is {text!r}", hint="give numbers above 0, e.g. 1,2,4")
    return tuple(
        Level(kind="closed" if args.rate is None else "open", value=value) for value in values
    )


def _fields(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"--body is {text!r}", hint='give an object: {"ignore_eos": true}')
    return found


def _check_installed(package: str) -> None:
    if find_spec(package) is None:
        raise UsageError(
            f"bench serve needs {package}, which is not installed",
            hint='pip install -e "./deepinfer_core[bench]"',
        )


def _check_plot(path: Path) -> None:
    _check_installed("matplotlib")
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise UsageError(f"--plot is {path}", hint="end its name in .png, .svg or .pdf")


def _print(outcome: Outcome) -> None:
    for line in outcome.head_lines():
        print(line)
    print()
    print_table(outcome.table())
