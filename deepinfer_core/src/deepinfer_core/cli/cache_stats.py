"""What does a store keep, what does a service tell of its own, and why is a figure zero?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from deepinfer_core.cli.configured_store import namespace_of_salt, open_store
from deepinfer_core.cli.output import complain, print_json, print_table
from deepinfer_core.cli.service_call import key_in, metrics_of

if TYPE_CHECKING:
    import argparse

    from deepinfer_core.cli.configured_store import ConfiguredStore
    from deepinfer_core.interfaces.kv_store import StoreReport
    from deepinfer_core.stores.inspection import Contents

__all__ = [
    "OTHERWISE",
    "SHOWN_DIGITS",
    "ask_service",
    "namespaces",
    "stats",
    "tell_problem",
    "totals_of",
]

SHOWN_DIGITS = 8
"""Of namespaces and keys, which tell what prompts were."""

OTHERWISE = {
    "stats": "ask the service: deepinfer cache stats --url http://HOST:PORT",
    "verify": "nothing is to be done: the service checks each block that it reads, and lets go of"
    " damaged ones",
    "gc": "nothing is to be done: the service sweeps once a minute",
    "purge": "end the service: what it keeps in memory ends with it",
}
"""What to do instead where blocks end with the process that uses them."""


def stats(args: argparse.Namespace, configured: ConfiguredStore, data: dict[str, Any]) -> int:
    """Show what the configured store keeps."""
    from deepinfer_core.stores.inspection import contents

    with open_store(configured, writes=False, otherwise=OTHERWISE["stats"]) as store:
        report, found = store.report(), contents(store)
    kept = namespaces(found)
    data |= totals_of(report)
    data["groups"] = {name: _group_data(one) for name, one in found.items()}
    data["namespaces"] = {key.hex(): blocks for key, blocks in kept.items()}
    if args.salt is not None:
        salted = namespace_of_salt(configured, args.salt)
        data["salt"] = {"namespace": salted.hex(), "blocks": kept.get(salted, 0)}
    data["why"] = dict(_reasons(data))
    if not args.json:
        _print_stats(data, found)
    return 0


def _reasons(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Why a figure is zero."""
    if not data["records"]:
        yield "blocks", data["problem"] or "nothing was stored, or all of it has gone"
    for name, group in data["groups"].items():
        if group["blocks"]:
            continue
        if "state" in name:
            why = "a store that outlives processes is given no states; --url tells of those"
        elif data["records"]:
            why = f"all {data['records']:,} are of other groups"
        else:
            why = "the store holds nothing"
        yield f"group {name}", why
    if "salt" in data and not data["salt"]["blocks"]:
        why = "nobody asked with this salt, or the checkpoint or what computes was another one"
        yield "salt", f"the store holds nothing in this namespace: {why}"


def ask_service(args: argparse.Namespace) -> int:
    """What a running service tells of its store."""
    from deepinfer_core.cli.service_figures import figures_of_text, told

    figures = figures_of_text(metrics_of(args.url, key_in(args.key_file)))
    rows = list(told(figures))
    if args.json:
        shown = [{"figure": one.name, "value": one.value, "why": one.why} for one in rows]
        print_json({"store": figures.store, "figures": shown})
        return 0
    print(f"store     {figures.store or 'none'}\n")
    print_table([("figure", "value", "why"), *((n, f"{v:,.0f}", why) for n, v, why in rows)])
    return 0


def _group_data(found: Contents) -> dict[str, Any]:
    return {"blocks": found.blocks, "bytes": found.data_bytes, "classes": dict(found.classes)}


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
        [("namespace", "blocks"), *((key[:SHOWN_DIGITS], f"{n:,}") for key, n in shown[:20])]
    )
    if len(shown) > 20:
        print(f"and {len(shown) - 20:,} more")
    if "salt" in data:
        digits, blocks = data["salt"]["namespace"][:SHOWN_DIGITS], data["salt"]["blocks"]
        print(f"\n{digits} is the namespace of the salt, blocks {blocks:,}")
    for figure, why in data["why"].items():
        print(f"{figure}: {why}")
    tell_problem(data)


def namespaces(found: dict[str, Contents]) -> dict[bytes, int]:
    """Blocks of all groups, the namespace with most of them first."""
    total: dict[bytes, int] = {}
    for one in found.values():
        for namespace, blocks in one.namespaces.items():
            total[namespace] = total.get(namespace, 0) + blocks
    return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))


def totals_of(report: StoreReport) -> dict[str, Any]:
    """What a store tells of itself, as data."""
    return {
        "records": report.records,
        "used_bytes": report.used_bytes,
        "capacity_bytes": report.capacity_bytes,
        "problem": report.problem,
    }


def tell_problem(data: dict[str, Any]) -> None:
    """Say on standard error what is wrong with a store."""
    if data["problem"]:
        complain(data["problem"], "", kind="warning")
