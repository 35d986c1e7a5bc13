"""What is kept of finished blocks, is it whole, and how is it made less?

``stats`` and ``verify`` look, also beside a service; ``gc`` and ``purge`` change the store and so
need to be the ones that write, and ``verify --repair`` does. The configuration is that of the
service: it names the store and the checkpoint, whose blocks are looked at.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepinfer_core.cli.cache_stats import (
    OTHERWISE,
    SHOWN_DIGITS,
    ask_service,
    namespaces,
    stats,
    tell_problem,
    totals_of,
)
from deepinfer_core.cli.configured_store import configured_store, namespace_of_salt, open_store
from deepinfer_core.cli.output import print_json
from deepinfer_core.cli.parser import UsageError, add_settings_arguments, settings_from

if TYPE_CHECKING:
    from deepinfer_core.cli.configured_store import ConfiguredStore
    from deepinfer_core.interfaces.kv_store import KvStore

__all__ = ["add_arguments", "run"]

_MOST_LISTED = 100
_DAMAGED_STATUS = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    told = _declare(actions, "stats", stats, "what is kept, by group, class and namespace")
    told.add_argument(
        "--salt", metavar="TEXT", help="also how much of requests with this cache_salt"
    )
    told.add_argument(
        "--url",
        metavar="URL",
        help="ask a running service instead: what came from its store and went there, and of every"
        " zero why",
    )
    told.add_argument("--key-file", type=Path, metavar="FILE", help="whose first line is its key")
    verify = _declare(actions, "verify", _verify, "read every block and check it")
    verify.add_argument(
        "--repair", action="store_true", help="remove what is damaged, so that it is stored again"
    )
    _declare(actions, "gc", _gc, "remove what has expired and make room, now")
    purge = _declare(actions, "purge", _purge, "remove blocks, whether anybody needs them or not")
    what = purge.add_mutually_exclusive_group(required=True)
    what.add_argument("--all", action="store_true", help="of everybody")
    what.add_argument(
        "--namespace",
        metavar="HEX",
        help=f"at least {SHOWN_DIGITS} digits of one that stats lists",
    )
    what.add_argument(
        "--salt", metavar="TEXT", help="of requests with this cache_salt; '' is those with none"
    )
    purge.add_argument("--yes", action="store_true", help="without it, only say what would go")


def _declare(actions: Any, name: str, act: Any, summary: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=summary, description=summary)
    parser.add_argument("--json", action="store_true", help="one object")
    add_settings_arguments(parser)
    parser.set_defaults(act=act)
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the chosen action."""
    if getattr(args, "url", None) is not None:
        _refuse_settings(args)
        return ask_service(args)
    configured = configured_store(settings_from(args))
    data: dict[str, Any] = {"store": configured.name}
    status: int = args.act(args, configured, data)
    if args.json:
        print_json(data)
    return status


def _refuse_settings(args: argparse.Namespace) -> None:
    """A service tells of its own store, whatever a file says, and of no namespace."""
    given = {"-c": args.config, "--set": args.overrides, "--salt": args.salt}
    named = [name for name, value in given.items() if value not in (None, [])]
    if named:
        raise UsageError(
            f"--url asks a service about its own store, found {' and '.join(named)} beside it",
            hint="leave out --url to look into the store that the settings name, or the others",
        )


def _verify(args: argparse.Namespace, configured: ConfiguredStore, data: dict[str, Any]) -> int:
    from deepinfer_core.stores.inspection import discard_damaged, verify

    with open_store(configured, writes=False, otherwise=OTHERWISE["verify"]) as store:
        found = verify(store)
        data["problem"] = store.report().problem
    data["checked"] = sum(found.outcomes.values())
    data["outcomes"] = dict(found.outcomes)
    data["damaged"] = [
        {
            "group": one.group,
            "key": one.key.hex()[:SHOWN_DIGITS],
            "status": one.outcome.status,
            "reason": one.outcome.reason,
        }
        for one in found.damaged[:_MOST_LISTED]
    ]
    data["repaired"] = 0
    if args.repair and found.damaged:
        with open_store(configured, writes=True, otherwise=OTHERWISE["verify"]) as store:
            data["repaired"] = discard_damaged(store, found.damaged)
            data["problem"] = store.report().problem
    if not args.json:
        counts = ", ".join(f"{n:,} {status}" for status, n in sorted(found.outcomes.items()))
        print(f"read {data['checked']:,} blocks of {data['store']}: {counts or 'there are none'}")
        for one in data["damaged"]:
            print(f"{one['group']} {one['key']}: {one['status']}, {one['reason']}")
        if args.repair:
            print(f"removed {data['repaired']:,} that were damaged")
        tell_problem(data)
    is_whole = len(found.damaged) <= data["repaired"] and not data["problem"]
    return 0 if is_whole else _DAMAGED_STATUS


def _gc(args: argparse.Namespace, configured: ConfiguredStore, data: dict[str, Any]) -> int:
    with open_store(configured, writes=True, otherwise=OTHERWISE["gc"]) as store:
        data["removed"] = store.sweep(deadline_s=math.inf)
        report = store.report()
    data["reasons"] = dict(report.removed)
    data |= totals_of(report)
    if not args.json:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in sorted(report.removed.items()))
        print(f"removed {data['removed']:,} blocks{': ' if reasons else ''}{reasons}")
        print(f"{report.records:,} blocks are left, {report.used_bytes:,} bytes")
        tell_problem(data)
    return 0


def _purge(args: argparse.Namespace, configured: ConfiguredStore, data: dict[str, Any]) -> int:
    from deepinfer_core.stores.inspection import contents

    with open_store(configured, writes=args.yes, otherwise=OTHERWISE["purge"]) as store:
        namespace = _named(args, configured, store)
        if not args.yes:
            found = namespaces(contents(store))
            blocks = sum(found.values()) if namespace is None else found.get(namespace, 0)
            _check_salt(args, blocks)
            raise UsageError(
                f"asked to remove {blocks:,} blocks from {data['store']} for good",
                hint="say so with --yes",
            )
        data["removed"] = store.drop(namespace)
        _check_salt(args, data["removed"])
        data |= totals_of(store.report())
    if not args.json:
        print(f"removed {data['removed']:,} blocks, {data['records']:,} are left")
    return 0


def _check_salt(args: argparse.Namespace, blocks: int) -> None:
    """A mistake in a salt must not look like blocks that are gone."""
    if args.salt is not None and not blocks:
        raise UsageError(
            "no blocks of that salt", hint="it names blocks together with the checkpoint and -c"
        )


def _named(args: argparse.Namespace, configured: ConfiguredStore, store: KvStore) -> bytes | None:
    """The namespace to be dropped; None: all."""
    from deepinfer_core.stores.inspection import contents

    if args.all:
        return None
    if args.salt is not None:
        return namespace_of_salt(configured, args.salt)
    if len(args.namespace) < SHOWN_DIGITS:
        raise UsageError(
            f"--namespace {args.namespace}", hint=f"give {SHOWN_DIGITS} digits or more"
        )
    wanted = args.namespace.lower()
    found = [key for key in namespaces(contents(store)) if key.hex().startswith(wanted)]
    if len(found) != 1:
        raise UsageError(
            f"--namespace {args.namespace} is that of {len(found)} namespaces",
            hint="deepinfer cache stats --json lists them in full",
        )
    return found[0]
