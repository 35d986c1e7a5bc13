"""What is in a checkpoint, is it whole, and how does one make a random one?"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepinfer_core.cli.output import print_json, print_table

if TYPE_CHECKING:
    from deepinfer_core.weights.checkpoint import Checkpoint
    from deepinfer_core.weights.manifest import Manifest
    from deepinfer_core.weights.progress import LoadProgress, ProgressListener

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    inspect = actions.add_parser(
        "inspect", help="contents, formats and fingerprint; reads headers only"
    )
    inspect.add_argument("folder", type=Path, metavar="DIR")
    inspect.add_argument("--json", action="store_true", help="as data, with every weight")
    inspect.set_defaults(act=_inspect)

    verify = actions.add_parser("verify", help="check every tensor and read all data")
    verify.add_argument("folder", type=Path, metavar="DIR", help="a checkpoint, or a config.json")
    verify.add_argument(
        "--config-only",
        action="store_true",
        help="read the configuration only, and show which tensors it demands",
    )
    verify.add_argument("--full", action="store_true", help="also hash all data")
    verify.add_argument("--json", action="store_true", help="as data")
    verify.set_defaults(act=_verify)

    make = actions.add_parser("make-random", help="write random weights in the true formats")
    make.add_argument("folder", type=Path, metavar="DIR", help="new, or empty")
    shape = make.add_mutually_exclusive_group(required=True)
    shape.add_argument("--config", type=Path, metavar="FILE", help="a config.json")
    shape.add_argument("--size-bytes", type=int, metavar="N", help="choose a model of that size")
    make.add_argument("--shards", type=int, default=1, metavar="N", help="files (default 1)")
    make.add_argument("--seed", type=int, default=0, metavar="N", help="default 0")
    make.add_argument("--json", action="store_true", help="as data")
    make.set_defaults(act=_make_random)


def run(args: argparse.Namespace) -> int:
    """Run the chosen action. Errors are raised; a checkpoint that fails a check is one."""
    status: int = args.act(args)
    return status


def _inspect(args: argparse.Namespace) -> int:
    checkpoint = _open(args.folder)
    data = _summary(checkpoint)
    if args.json:
        data["weights"] = [
            {
                "name": name,
                "shape": list(weight.spec.shape),
                "format": weight.format,
                "bytes": weight.nbytes,
                "file": weight.data.path.name,
            }
            for name, weight in checkpoint.found.items()
        ]
        print_json(data)
        return 0
    _print_summary(data)
    print()
    print_table([("format", "weights"), *((name, f"{n:,}") for name, n in data["formats"].items())])
    return 0


def _verify(args: argparse.Namespace) -> int:
    if args.config_only:
        return _verify_config(args)
    from deepinfer_core.weights.fingerprint import fingerprint

    with _ProgressLine() as line:
        checkpoint = _open(args.folder, progress=line.show)
        checkpoint.scan()
    data = _summary(checkpoint) | {"verified": "data"}
    if args.full:
        data["full_fingerprint"] = fingerprint(checkpoint.folder, checkpoint.shards, full=True)
    if args.json:
        print_json(data)
        return 0
    _print_summary(data)
    print("\nverified: names, shapes, formats, file sizes; all data readable and finite")
    return 0


def _open(folder: Path, progress: ProgressListener | None = None) -> Checkpoint:
    """Open a checkpoint; whether there is one is answered before torch is imported."""
    from deepinfer_core.model.config import ModelConfig

    ModelConfig.from_file(folder / "config.json")
    from deepinfer_core.weights.checkpoint import open_checkpoint

    return open_checkpoint(folder, progress=progress)


def _verify_config(args: argparse.Namespace) -> int:
    from deepinfer_core.model.config import ModelConfig
    from deepinfer_core.weights.manifest import manifest_of

    data = _totals(manifest_of(ModelConfig.from_file(args.folder)))
    if args.json:
        print_json(data | {"verified": "config"})
    else:
        _print_groups(data)
    return 0


def _make_random(args: argparse.Namespace) -> int:
    from deepinfer_core.model.config import ModelConfig
    from deepinfer_core.weights.manifest import manifest_of
    from deepinfer_core.weights.random_checkpoint import make_random_checkpoint
    from deepinfer_core.weights.sized_config import config_of_size

    config = ModelConfig.from_file(args.config) if args.config else config_of_size(args.size_bytes)
    with _ProgressLine() as line:
        make_random_checkpoint(
            args.folder, config, shards=args.shards, seed=args.seed, progress=line.show
        )
    data = _totals(manifest_of(config)) | {
        "folder": str(args.folder),
        "shards": args.shards,
        "seed": args.seed,
    }
    if args.json:
        print_json(data)
    else:
        print(f"wrote {data['tensors']:,} tensors, {data['bytes']:,} bytes to {args.folder}")
    return 0


def _totals(manifest: Manifest) -> dict[str, Any]:
    groups = {
        name: {"tensors": count, "bytes": size}
        for name, (count, size) in manifest.by_group().items()
    }
    return {
        "groups": groups,
        "tensors": sum(group["tensors"] for group in groups.values()),
        "bytes": sum(group["bytes"] for group in groups.values()),
    }


def _summary(checkpoint: Checkpoint) -> dict[str, Any]:
    """What the files hold, which may be plain where the configuration declares formats."""
    groups = {name: {"tensors": 0, "bytes": 0} for name in checkpoint.manifest.by_group()}
    for weight in checkpoint.found.values():
        group = groups[weight.spec.group]
        group["tensors"] += 1 if weight.scale is None else 2
        group["bytes"] += weight.nbytes
    formats = Counter(weight.format for weight in checkpoint.found.values())
    return {
        "folder": str(checkpoint.folder),
        "shards": len(checkpoint.shards),
        "groups": groups,
        "tensors": sum(group["tensors"] for group in groups.values()),
        "bytes": checkpoint.nbytes,
        "formats": dict(sorted(formats.items())),
        "fingerprint": checkpoint.fingerprint,
    }


def _print_summary(data: dict[str, Any]) -> None:
    rows = [("folder", data["folder"]), ("shards", f"{data['shards']:,}")]
    rows += [(key.replace("_", " "), data[key]) for key in data if key.endswith("fingerprint")]
    print_table(rows)
    print()
    _print_groups(data)


def _print_groups(data: dict[str, Any]) -> None:
    rows = [("group", "tensors", "bytes")]
    rows += [(name, f"{g['tensors']:,}", f"{g['bytes']:,}") for name, g in data["groups"].items()]
    print_table([*rows, ("total", f"{data['tensors']:,}", f"{data['bytes']:,}")])


class _ProgressLine:
    """One line on standard error, rewritten at every full percent; silent if not a terminal."""

    def __init__(self) -> None:
        self._shown = ""

    def __enter__(self) -> _ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            print(f"\r{' ' * len(self._shown)}\r", end="", file=sys.stderr, flush=True)

    def show(self, event: LoadProgress) -> None:
        """Take an event of a reader or writer."""
        percent = 100 * event.bytes_done // max(1, event.bytes_total)
        line = f"{event.phase} {percent:3d} %"
        if line != self._shown and sys.stderr.isatty():
            self._shown = line
            print(f"\r{line}", end="", file=sys.stderr, flush=True)
