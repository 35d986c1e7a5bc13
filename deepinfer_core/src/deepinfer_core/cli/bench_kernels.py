"""Which kernels does each backend have, how well are they shown to work, and how fast are they?

``--evidence`` needs no device: it interprets, lowers and compiles. Without it, kernels run at the
model's own sizes on the device that the settings name, next to their bounds and peers. ``--record``
keeps what was shown, with what each kernel then was; ``--from`` takes that over from the record of
another machine. ``--tune`` looks for faster tunings, see ``cli.tune_kernels``.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from deepinfer_core.cli.output import check_writable, print_json, print_table
from deepinfer_core.cli.parser import UsageError, add_settings_arguments, settings_from
from deepinfer_core.cli.tune_kernels import add_tuning_arguments, check_tuning, on_device, tune

if TYPE_CHECKING:
    from deepinfer_core.bench.kernels import KernelTime
    from deepinfer_core.bench.stamp import Stamp
    from deepinfer_core.interfaces.operators.catalogue import KernelCatalogue, Kernels
    from deepinfer_core.plugin.resolution import Resolution
    from deepinfer_core.testing.evidence import KernelEvidence

__all__ = ["add_kernels_action"]


def add_kernels_action(actions: argparse._SubParsersAction[Any]) -> None:
    """Declare the action among those of ``bench``."""
    parser = actions.add_parser("kernels", help="kernels against twins, bounds and peers")
    add = parser.add_argument
    add("--evidence", action="store_true", help="interpret, lower and compile; needs no device")
    add(
        "--operator",
        metavar="TEXT,...",
        default="",
        help="only kernels whose name holds one of these",
    )
    add(
        "--jobs",
        type=_count,
        default=1,
        metavar="N",
        help="processes that make the evidence, or compile before kernels are timed",
    )
    add(
        "--record",
        type=Path,
        metavar="FILE",
        help="try every case, and write what was shown of kernels that are right into a record",
    )
    add(
        "--from",
        type=Path,
        metavar="FILE",
        dest="source",
        help="try nothing: put into --record what this one says was measured of unchanged kernels",
    )
    add("--json", action="store_true", help="one object a kernel or figure")
    add("--out", type=Path, metavar="FILE", help="write these objects to a file as well")
    add_tuning_arguments(parser)
    add_settings_arguments(parser)
    parser.set_defaults(act=_run)


def _run(args: argparse.Namespace) -> int:
    from deepinfer_core.config import resolve_components

    if args.out is not None:
        check_writable(args.out)
    _check_records(args.source, args.record)
    check_tuning(args)
    resolution = resolve_components(settings_from(args))
    catalogues = _catalogues(resolution)
    if not catalogues:
        raise UsageError(
            "no backend with tile kernels is installed",
            hint="install one, e.g. deepinfer-nvidia: pip install -r requirements/nvidia.txt",
        )
    if not args.tune and not any(_kernels(one, args.operator) for one in catalogues.values()):
        known = sorted(name for catalogue in catalogues.values() for name in catalogue.kernels)
        raise UsageError(
            f"no kernel's name holds {args.operator!r}",
            hint=f"there is {', '.join(known)}",
        )
    if args.tune:
        found, is_good = tune(args, resolution, catalogues)
    elif args.source is not None:
        found, is_good = _taken(args, catalogues)
    else:
        found, is_good = (_evidence if args.evidence else _times)(args, resolution, catalogues)
    if args.out is not None and not args.tune:
        _write(args.out, found)
    if args.json:
        print_json(found)
    return 0 if is_good else 1


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes")
    return number


def _check_records(source: Path | None, record: Path | None) -> None:
    """Find out before anything is compiled or measured.

    Raises:
        UsageError: a file is missing, or cannot be written.
        ConfigError: a file is no record.
    """
    from deepinfer_core.testing.kernel_record import read_record

    if source is not None and record is None:
        raise UsageError(
            f"asked to take what {source} says, found no --record to fill",
            hint=f"bench kernels --from {source} --record RECORD",
        )
    if source is not None and not source.is_file():
        raise UsageError(
            f"asked to take what {source} says, found no such file",
            hint="name a file that bench kernels --record wrote",
        )
    if record is not None:
        check_writable(record)
    for path in (source, record):
        if path is not None:
            read_record(path)


def _catalogues(resolution: Resolution) -> dict[str, KernelCatalogue]:
    """Of every loaded component that has kernels to show, each once, by its reference."""
    references = {offer.spec.kernels for offer in resolution.plugins.offers if offer.spec.kernels}
    return {reference: resolve_name(reference)() for reference in sorted(references)}


def _kernels(catalogue: KernelCatalogue, texts: str) -> list[str]:
    from deepinfer_core.interfaces.operators.catalogue import is_named

    return [name for name in catalogue.kernels if is_named(name, texts)]


def _taken(
    args: argparse.Namespace, catalogues: dict[str, KernelCatalogue]
) -> tuple[list[dict[str, Any]], bool]:
    """What another record says was measured, of kernels that are here what they were there."""
    from deepinfer_core.testing.kernel_record import content_of, read_record, write_entries

    other, rows = read_record(args.source), []
    for catalogue in catalogues.values():
        for name in _kernels(catalogue, args.operator):
            entry = other.get(name, {}).get("measured")
            if entry is None:
                continue
            is_same = entry.get("content") == content_of(catalogue, name)
            if is_same:
                write_entries(args.record, "measured", {name: entry})
            rows.append({"kernel": name, "taken": is_same})
            if not args.json:
                print(f"{name}: {'taken' if is_same else 'not taken: it has changed since'}")
    return rows, bool(rows) and all(row["taken"] for row in rows)


def _evidence(
    args: argparse.Namespace, resolution: Resolution, catalogues: dict[str, KernelCatalogue]
) -> tuple[list[dict[str, Any]], bool]:
    from deepinfer_core.config.kernel_cache import kernel_cache_folder
    from deepinfer_core.testing.evidence import evidence_by
    from deepinfer_core.testing.kernel_record import write_entries

    cache = kernel_cache_folder(settings_from(args).settings.kernels.cache_dir)
    folder = Path(cache) / "tiles" if cache else None
    rows = []
    for reference, catalogue in catalogues.items():
        names = _kernels(catalogue, args.operator)
        for row in evidence_by(args.jobs, reference, names, folder):
            rows.append(row)
            if not args.json:
                _print_evidence(row)
            if args.record is not None and row.is_compiled:
                entry = {"content": row.content, "words": row.compiled}
                write_entries(args.record, "compiled", {row.kernel: entry})
    return [row.to_json() for row in rows], all(row.is_right for row in rows)


def _print_evidence(row: KernelEvidence) -> None:
    """At once: the next kernel may take a minute."""
    words = row.to_json()
    print(f"{words.pop('kernel')} of {words.pop('backend')}")
    for rung, found in words.items():
        print(f"  {rung:<11}  {found}", flush=True)


def _times(
    args: argparse.Namespace, resolution: Resolution, catalogues: dict[str, KernelCatalogue]
) -> tuple[list[dict[str, Any]], bool]:
    from deepinfer_core.bench.kernel_timing import ceilings
    from deepinfer_core.bench.kernels import kernel_times
    from deepinfer_core.bench.stamp import stamp_of

    resolved, device, chosen = on_device(resolution, catalogues)
    facts = resolution.report.device
    rates, stamp = ceilings(device), stamp_of(facts, 1)
    times: list[KernelTime] = []
    for catalogue in chosen:
        names = _kernels(catalogue, args.operator)
        kernels = catalogue.open(resolved.context.cache_dir)
        _compile(args, catalogue, kernels, names)
        place = str(device.torch_device)
        wrong = None
        if args.record is not None:
            wrong = _recorded(args.record, catalogue, kernels, names, place, stamp)
            times += wrong
        for name in names:
            times += kernel_times(
                device,
                catalogue,
                kernels,
                [name],
                rates,
                cache_bytes=int(facts.extra.get("l2_bytes", 0)),
                wrong=None if wrong is None else {item.case for item in wrong},
            )
            if args.out is not None:
                # What was measured stays if somebody ends the run.
                _write(args.out, _figures(times, stamp))
    if not args.json:
        _print_times(times, stamp)
    return _figures(times, stamp), not any(item.complaints for item in times)


def _figures(times: list[KernelTime], stamp: Stamp) -> list[dict[str, Any]]:
    return [figure.to_json(stamp) for item in times for figure in item.figures()]


def _write(path: Path, found: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _compile(
    args: argparse.Namespace, catalogue: KernelCatalogue, kernels: Kernels, names: list[str]
) -> None:
    """What will be called, before it is, where several processes may; else at its first call."""
    from deepinfer_core.testing.kernel_compiling import compile_trials
    from deepinfer_core.testing.kernel_trials import trials

    if args.jobs > 1:
        found = [trial for name in names for trial in trials(catalogue, name)]
        wanted = [one for one in found if one.case.moved_bytes or args.record is not None]
        compile_trials(kernels, wanted, jobs=args.jobs)


def _recorded(
    path: Path,
    catalogue: KernelCatalogue,
    kernels: Kernels,
    names: list[str],
    place: str,
    stamp: Stamp,
) -> list[KernelTime]:
    """Record the kernels that are right in all their trials; what is wrong with the others."""
    from deepinfer_core.bench.kernels import KernelTime, wrong_trials
    from deepinfer_core.testing.kernel_record import content_of, write_entries

    entry = {"date": stamp.date, "hardware": stamp.hardware, "commit": stamp.commit}
    wrong = []
    for name in names:
        found = wrong_trials(catalogue, kernels, name, place)
        wrong += [KernelTime(case=trial, complaints=words) for trial, words in found.items()]
        if not found:
            content = content_of(catalogue, name)
            write_entries(path, "measured", {name: {"content": content, **entry}})
    return wrong


def _print_times(times: list[KernelTime], stamp: Stamp) -> None:
    print(f"hardware  {stamp.hardware}")
    print(f"program   {stamp.commit}, {stamp.date}\n")
    rows = [("kernel", "us", "bound us", "of bound", "peer us", "peer")]
    for item in times:
        if item.complaints:
            rows.append((item.case, "wrong", "", "", "", item.complaints[0]))
            continue
        share = f"{item.bound_s / item.seconds:.2f}"
        peer = "" if math.isnan(item.peer_s) else f"{item.peer_s * 1e6:.1f}"
        rows.append(
            (item.case, f"{item.seconds * 1e6:.1f}", f"{item.bound_s * 1e6:.1f}", share, peer,
             item.peer)
        )  # fmt: skip
    print_table(rows)
