"""How fast does a store of blocks keep, find and give back, next to a bare map and a bare LMDB?

The store is the one that the settings name. Its blocks are random, in a namespace of their own,
and dropped at the end; but what is there already may have to make room, so give it a folder that
nothing else is kept in.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepinfer_core.cli.output import check_writable, print_json, print_table
from deepinfer_core.cli.parser import UsageError, add_settings_arguments, settings_from

if TYPE_CHECKING:
    from deepinfer_core.bench.figures import Figure
    from deepinfer_core.bench.stamp import Stamp
    from deepinfer_core.plugin.resolved import Pick

__all__ = ["add_cache_action"]

_BLOCK_BYTES = 113_920


def add_cache_action(actions: argparse._SubParsersAction[Any]) -> None:
    """Declare the action among those of ``bench``."""
    parser = actions.add_parser("cache", help="a store of blocks against a bare map and LMDB")
    add = parser.add_argument
    add(
        "--block-bytes",
        type=int,
        default=_BLOCK_BYTES,
        metavar="N",
        help="of a block; default %(default)s, those of the full model",
    )
    add(
        "--prefixes",
        type=int,
        default=4,
        metavar="N",
        help="of 602 blocks each (77,000 tokens), default %(default)s",
    )
    add("--batch", type=int, default=64, metavar="N", help="blocks of a call that stores; 64")
    add("--repeat", type=int, default=7, metavar="N", help="runs; default %(default)s")
    add(
        "--scratch",
        type=Path,
        metavar="DIR",
        help="where the files to compare with are made; default: beside the store's folder",
    )
    add("--json", action="store_true", help="one object a figure")
    add("--out", type=Path, metavar="FILE", help="write these objects to a file as well")
    add_settings_arguments(parser)
    parser.set_defaults(act=_run)


def _run(args: argparse.Namespace) -> int:
    for name in ("block_bytes", "prefixes", "batch", "repeat"):
        if getattr(args, name) < 1:
            option = "--" + name.replace("_", "-")
            raise UsageError(f"{option} {getattr(args, name)}", hint="give 1 or more")
    if find_spec("lmdb") is None:
        raise UsageError(
            "bench cache needs lmdb, which is not installed",
            hint='pip install -e "./deepinfer_core[disk]"',
        )
    if args.out is not None:
        check_writable(args.out)
    figures, stamp = _measured(args)
    found = [figure.to_json(stamp) for figure in figures]
    if args.out is not None:
        args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if args.json:
        print_json(found)
    else:
        _print(figures, stamp)
    return 0


def _measured(args: argparse.Namespace) -> tuple[list[Figure], Stamp]:
    from deepinfer_core.bench.cache.measuring import CachePlan, bench_groups, measure_store
    from deepinfer_core.bench.stamp import stamp_of
    from deepinfer_core.config import resolve_components
    from deepinfer_core.interfaces.kv_store import KvStore
    from deepinfer_core.plugin import load

    resolution = resolve_components(settings_from(args))
    resolved = resolution.require()
    if not resolved.fills("kv_store"):
        raise UsageError(
            "the settings name no store",
            hint="--set components.kv_store.use=core.disk"
            " --set components.kv_store.options.folder=DIR",
        )
    pick = resolved.pick("kv_store")
    plan = CachePlan(
        store=pick.spec.name,
        block_bytes=args.block_bytes,
        prefixes=args.prefixes,
        batch_blocks=args.batch,
        repeats=args.repeat,
        durable=bool(pick.settings.get("durable", True)),
    )
    stamp = stamp_of(resolution.report.device, 1)
    store: KvStore = load(resolved, "kv_store")
    store.open(bench_groups(args.block_bytes))
    try:
        return measure_store(store, plan, args.scratch or _beside(pick)), stamp
    finally:
        store.close()


def _beside(pick: Pick) -> Path:
    folder = pick.settings.get("folder")
    return Path(folder).resolve().parent if folder else Path(tempfile.gettempdir())


def _print(figures: list[Figure], stamp: Stamp) -> None:
    print(f"hardware  {stamp.hardware}")
    print(f"program   {stamp.commit}, {stamp.date}\n")
    rows = [("figure", "value", "unit", "reference", "ratio", "what it is")]
    rows += [
        (
            one.name,
            f"{one.value:.4g}",
            one.unit,
            f"{one.reference.value:.4g}",
            f"{one.ratio:.3g}",
            one.reference.name,
        )
        for one in figures
    ]
    print_table(rows)
