"""What is kept of finished blocks, is it whole, and how is it made less?

``stats`` and ``verify`` look, also beside a service; ``gc`` and ``purge`` change the store and so
need to be the ones that write, and ``verify --repair`` does. The configuration is that of the
service: it names the store and the checkpoint, whose blocks are looked at.
"""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from deepinfer_core.cli.configured_store import configured_store, namespace_of_salt, open_store
from deepinfer_core.cli.output import complain, print_json, print_table
from deepinfer_core.cli.parser import UsageError, add_settings_arguments, settings_from

if TYPE_CHECKING:
    from deepinfer_core.cli.configured_store import ConfiguredStore
    from deepinfer_core.interfaces.kv_store import KvStore, StoreReport
    from deepinfer_core.stores.inspection import Contents

__all__ = ["add_arguments", "run"]

_MOST_LISTED = 100
_SHOWN_DIGITS = 8
_DAMAGED_STATUS = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _declare(actions, "stats", _stats, "what is kept, by group, class and namespace")
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
        help=f"at least {_SHOWN_DIGITS} digits of one that stats lists",
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
    configured = configured_store(settings_from(args))
    data: dict[str, Any] = {"store": configured.name}
    status: int = args.act(args, configured, data)
    if args.json:
        print_json(data)
    return status


def _stats(args: argparse.Namespace, configured: ConfiguredStore, data: dict[str, Any]) -> int:
    from deepinfer_core.stores.inspection import contents

    with open_store(configured, writes=False) as store:
        report, found = store.report(), contents(store)
    data |= _totals(report)
    data["groups"] = {name: _group_data(one) for name, one in found.items()}
    data["namespaces"] = {key.hex(): blocks for key, blocks in _namespaces(found).items()}
    if not args.json:
        _print_stats(data, found)
    return 0


def _totals(report: StoreReport) -> dict[str, Any]:
    return {
        "records": report.records,
        "used_bytes": report.used_bytes,
        "capacity_bytes": report.capacity_bytes,
        "problem": report.problem,
    }


def _group_data(found: Contents) -> dict[str, Any]:
    return {"blocks": found.blocks, "bytes": found.data_bytes, "classes": dict(found.classes)}


def _namespaces(found: dict[str, Contents]) -> dict[bytes, int]:
    """Blocks of all groups, the namespace with most of them first."""
    total: dict[bytes, int] = {}
    for one in found.values():
        for namespace, blocks in one.namespaces.items():
            total[namespace] = total.get(namespace, 0) + blocks
    return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))


def _print_stats(data: dict[str, Any], found: dict[str, Contents]) -> None:
    used, capacity = data["used_bytes"], data["capacity_bytes"]
    share = f", {used / capacity:.1%} of {capacity:,}" if capacity else ""
    print(f"store     {data['store']}")
    print(f"blocks    {data['records']:,} of all groups and models")
    print(f"taken     {used:,} bytes{share}\n")
    rows = [("group", "class", "blocks")]
    for name, one in found.items():
        rows += [(name, retention, f"{n:,}") for retention, n in sorted(one.classes.items())]
    print_table([*rows, ("all", "", f"{sum(one.blocks for one in found.values()):,}")])
    print()
    shown = list(data["namespaces"].items())
    print_table(
        [("namespace", "blocks"), *((key[:_SHOWN_DIGITS], f"{n:,}") for key, n in shown[:20])]
    )
    if len(shown) > 20:
        print(f"and {len(shown) - 20:,} more")
    _tell_problem(data)


def _tell_problem(data: dict[str, Any]) -> None:
    if data["problem"]:
        complain(data["problem"], "", kind="warning")


def _verify(args: argparse.Namespace, configured: ConfiguredStore, data: dict[str, Any]) -> int:
    from deepinfer_core.stores.inspection import discard_damaged, verify

    with open_store(configured, writes=False) as store:
        found = verify(store)
        data["problem"] = store.report().problem
    data["checked"] = sum(found.outcomes.values())
    data["outcomes"] = dict(found.outcomes)
    data["damaged"] = [
        {
            "group": one.group,
            "key": one.key.hex()[:_SHOWN_DIGITS],
            "status": one.outcome.status,
            "reason": one.outcome.reason,
        }
        for one in found.damaged[:_MOST_LISTED]
    ]
    data["repaired"] = 0
    if args.repair and found.damaged:
        with open_store(configured, writes=True) as store:
            data["repaired"] = discard_damaged(store, found.damaged)
            data["problem"] = store.report().problem
    if not args.json:
        counts = ", ".join(f"{n:,} {status}" for status, n in sorted(found.outcomes.items()))
        print(f"read {data['checked']:,} blocks of {data['store']}: {counts or 'there are none'}")
        for one in data["damaged"]:
            print(f"{one['group']} {one['key']}: {one['status']}, {one['reason']}")
        if args.repair:
            print(f"removed {data['repaired']:,} that were damaged")
        _tell_problem(data)
    return _DAMAGED_STATUS if len(found.damaged) > data["repaired"] else 0


def _gc(args: argparse.Namespace, configured: ConfiguredStore, data: dict[str, Any]) -> int:
    with open_store(configured, writes=True) as store:
        data["removed"] = store.sweep(deadline_s=math.inf)
        report = store.report()
    data["reasons"] = dict(report.removed)
    data |= _totals(report)
    if not args.json:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in sorted(report.removed.items()))
        print(f"removed {data['removed']:,} blocks{': ' if reasons else ''}{reasons}")
        print(f"{report.records:,} blocks are left, {report.used_bytes:,} bytes")
        _tell_problem(data)
    return 0


def _purge(args: argparse.Namespace, configured: ConfiguredStore, data: dict[str, Any]) -> int:
    from deepinfer_core.stores.inspection import contents

    with open_store(configured, writes=args.yes) as store:
        namespace = _named(args, configured, store)
        if not args.yes:
            found = _namespaces(contents(store))
            blocks = sum(found.values()) if namespace is None else found.get(namespace, 0)
            _check_salt(args, blocks)
            raise UsageError(
                f"asked to remove {blocks:,} blocks from {data['store']} for good",
                hint="say so with --yes",
            )
        data["removed"] = store.drop(namespace)
        _check_salt(args, data["removed"])
        data |= _totals(store.report())
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
    if len(args.namespace) < _SHOWN_DIGITS:
        raise UsageError(
            f"--namespace {args.namespace}", hint=f"give {_SHOWN_DIGITS} digits or more"
        )
    wanted = args.namespace.lower()
    found = [key for key in _namespaces(contents(store)) if key.hex().startswith(wanted)]
    if len(found) != 1:
        raise UsageError(
            f"--namespace {args.namespace} is that of {len(found)} namespaces",
            hint="deepinfer cache stats --json lists them in full",
        )
    return found[0]
