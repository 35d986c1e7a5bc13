"""Which tunings of kernels are the fastest on this device, and what would change by taking them?

The work of ``bench kernels --tune``: all candidates are compiled, compared and timed, and a table
with the fastest is written to a file that the user names. Nothing reads that file until somebody
puts it in the place of the shipped one.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepinfer_core.cli.output import check_writable, print_table
from deepinfer_core.cli.parser import UsageError

if TYPE_CHECKING:
    from deepinfer_core.bench.kernel_choices import Decision
    from deepinfer_core.bench.kernel_tuning import LoadTimes
    from deepinfer_core.interfaces.device import Device
    from deepinfer_core.interfaces.operators.catalogue import KernelCatalogue, Kernels
    from deepinfer_core.interfaces.operators.tunings import KernelTunings, TunedKernel
    from deepinfer_core.plugin.resolution import Resolution
    from deepinfer_core.plugin.resolved import Resolved
    from deepinfer_core.testing.kernel_cases.tuned import TunedLoad

__all__ = ["add_tuning_arguments", "check_tuning", "on_device", "tune"]

_US = 1e6


def add_tuning_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the work needs; ``--out`` and ``--jobs`` are those of other runs too."""
    add = parser.add_argument
    add("--tune", action="store_true", help="time all tunings; --out gets the table of the fastest")
    add(
        "--shapes",
        metavar="TEXT,...",
        type=_names,
        default=(),
        help="of --tune: cases whose name holds one of these, e.g. x8192x1x5120",
    )
    add("--times", type=Path, metavar="FILE", help="of --tune: write the time of every candidate")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def check_tuning(args: argparse.Namespace) -> None:
    """Find out before anything is compiled.

    Raises:
        UsageError: options do not go together, or one is missing.
    """
    if not args.tune:
        if args.shapes or args.times:
            raise UsageError(
                "asked for --shapes or --times, found no --tune, which they are for",
                hint="--operator TEXT chooses the kernels that are timed or shown",
            )
        return
    runs = (("--evidence", args.evidence), ("--record", args.record), ("--from", args.source))
    for name, value in runs:
        if value:
            raise UsageError(
                f"asked for --tune and {name}, found that they are runs of their own",
                hint="leave one out; --operator and --shapes choose what is tuned",
            )
    if args.out is None:
        raise UsageError(
            "asked for --tune, found no --out for the table",
            hint="bench kernels --tune --out FILE; the shipped table is never written",
        )
    if args.times is not None:
        check_writable(args.times)


def on_device(
    resolution: Resolution, catalogues: Mapping[str, KernelCatalogue]
) -> tuple[Resolved, Device, list[KernelCatalogue]]:
    """The device of the settings, and the kernels for it.

    Raises:
        NoUsableComponent: the device is not there.
        UsageError: there are no kernels for it.
    """
    from deepinfer_core.plugin import load

    resolved = resolution.require()
    backend = resolved.pick("device").spec.name.partition(".")[0]
    chosen = [one for one in catalogues.values() if one.backend == backend]
    if not chosen:
        raise UsageError(
            f"the device {resolution.report.device.device} has no tile kernels",
            hint="name another one, e.g. --set device=nvidia, or ask for --evidence",
        )
    return resolved, load(resolved, "device"), chosen


def tune(
    args: argparse.Namespace, resolution: Resolution, catalogues: Mapping[str, KernelCatalogue]
) -> tuple[list[dict[str, Any]], bool]:
    """Measure, print and write the table.

    Returns:
        An object for each candidate of each size; and whether all of them were right.
    """
    from deepinfer_core.bench.kernel_choices import decide
    from deepinfer_core.bench.stamp import stamp_of

    resolved, device, found = on_device(resolution, catalogues)
    catalogue = next((one for one in found if one.tunings is not None), None)
    if catalogue is None or catalogue.tunings is None:
        raise UsageError(
            "asked for --tune, found no kernels here that have tunings to choose among",
            hint="bench kernels without --tune times what there is",
        )
    facts, tunings = resolution.report.device, catalogue.tunings()
    stamp = stamp_of(facts, 1)
    wanted = _wanted(args, tunings)
    kernels = catalogue.open(resolved.context.cache_dir)
    refused = _compiled(args, catalogue, kernels, tunings, [one for one, _ in wanted])
    decisions: list[Decision] = []
    choices = []
    for loads, is_whole in wanted:
        sizes = _timed(device, catalogue, kernels, tunings, loads, refused, facts.extra)
        made, chosen = decide(tunings, sizes, is_whole=is_whole)
        decisions += made
        # What was measured stays if somebody ends the run.
        if args.times is not None:
            args.times.write_text(json.dumps(_objects(decisions), indent=1) + "\n")
        if chosen is not None:
            choices.append(chosen)
            text = tunings.table(
                choices, hardware=stamp.hardware, date=stamp.date, commit=stamp.commit
            )
            args.out.write_text(text, encoding="utf-8")
        if not args.json:
            _print(loads, sizes, made, is_written=chosen is not None)
    is_right = all(not one.times.problems for one in decisions)
    return _objects(decisions), is_right


def _wanted(
    args: argparse.Namespace, tunings: KernelTunings
) -> list[tuple[Sequence[TunedLoad], bool]]:
    """The sizes of each spec that were asked for, and whether those are all of the spec.

    Raises:
        UsageError: there are none.
    """
    from deepinfer_core.interfaces.operators.catalogue import is_named
    from deepinfer_core.testing.kernel_cases.tuned import tuned_loads

    known = tunings.operators
    names = [name for name in known if is_named(name, args.operator)]
    if not names:
        raise UsageError(
            f"asked for the tunings of {args.operator!r}, found none to choose among",
            hint=f"there is {', '.join(known)}; other kernels have one tuning for all rows",
        )
    specs = [loads for name in names for loads in tuned_loads(name)]
    chosen = [[load for load in loads if _is_asked_for(args, load)] for loads in specs]
    wanted = [(some, len(some) == len(all_)) for some, all_ in zip(chosen, specs, strict=True)]
    if not any(some for some, _ in wanted):
        firsts = ", ".join(load.case.name for loads in specs for load in loads[:1])
        raise UsageError(
            f"asked for the shapes {', '.join(args.shapes)}, found no case whose name holds one",
            hint=f"names are like {firsts}",
        )
    return [one for one in wanted if one[0]]


def _is_asked_for(args: argparse.Namespace, load: TunedLoad) -> bool:
    return not args.shapes or any(text in load.case.name for text in args.shapes)


def _compiled(
    args: argparse.Namespace,
    catalogue: KernelCatalogue,
    kernels: Kernels,
    tunings: KernelTunings,
    specs: Sequence[Sequence[TunedLoad]],
) -> dict[tuple[str, TunedKernel], str]:
    """Compile all candidates; the words of the compiler where it refused, by operator and spec."""
    from deepinfer_core.bench.kernel_tuning import trial_of
    from deepinfer_core.testing.kernel_compiling import compile_trials

    pairs = [
        (loads[0], one)
        for loads in specs
        for one in tunings.candidates(loads[0].case.operator, loads[0].case.spec)
    ]
    trials = [trial_of(catalogue, load, one) for load, one in pairs]
    problems = compile_trials(kernels, trials, jobs=args.jobs)
    return {
        (str(load.case.spec), one): words
        for (load, one), words in zip(pairs, problems, strict=True)
        if words
    }


def _timed(
    device: Device,
    catalogue: KernelCatalogue,
    kernels: Kernels,
    tunings: KernelTunings,
    loads: Sequence[TunedLoad],
    refused: Mapping[tuple[str, TunedKernel], str],
    extra: Mapping[str, Any],
) -> list[LoadTimes]:
    from deepinfer_core.bench.kernel_tuning import load_times

    spec = str(loads[0].case.spec)
    own = {one: words for (name, one), words in refused.items() if name == spec}
    return [
        load_times(
            device,
            catalogue,
            kernels,
            tunings,
            load,
            cache_bytes=int(extra.get("l2_bytes", 0)),
            refused=own,
        )
        for load in loads
    ]


def _print(
    loads: Sequence[TunedLoad],
    sizes: Sequence[LoadTimes],
    decisions: Sequence[Decision],
    *,
    is_written: bool,
) -> None:
    rows = [("case", "now us", "fastest us", "spread", "gain", "of peer", "other bits us", "")]
    for one in decisions:
        times, samples = one.times, one.times.samples
        best, now = samples[one.choice], samples.get(times.picked)
        share = times.peer_s / best.seconds
        rows.append(
            (
                times.load.case.id,
                _us(now.seconds if now else math.nan),
                _us(best.seconds),
                _us(best.spread_s),
                f"{one.gain:.1%}" if one.is_change else "stays",
                "" if math.isnan(share) else f"{share:.2f}",
                " ".join(_us(samples[other].seconds) for other in one.others),
                f"{one.choice.kernel} {one.choice.tuning}" if one.is_change else "",
            )
        )
    print_table(rows)
    for size in sizes:
        if size.peer and math.isnan(size.peer_s):
            print(f"{size.load.case.id} beside {size.peer}")
        for candidate, words in size.problems.items():
            print(f"{size.load.case.id} with {candidate.kernel} {candidate.tuning}: {words}")
    if not is_written:
        print(f"{loads[0].case.spec}: not written, as not all of its rows were measured and right")
    print(flush=True)


def _us(seconds: float) -> str:
    return "" if math.isnan(seconds) else f"{seconds * _US:.2f}"


def _objects(decisions: Sequence[Decision]) -> list[dict[str, Any]]:
    return [item for one in decisions for item in _to_json(one)]


def _to_json(one: Decision) -> list[dict[str, Any]]:
    times = one.times
    head = {"case": times.load.case.id, "peer": times.peer, "peer_us": times.peer_s * _US}
    timed = [
        {
            **head,
            "kernel": candidate.kernel,
            "tuning": str(candidate.tuning),
            "us": sample.seconds * _US,
            "spread_us": sample.spread_s * _US,
            "is_picked": candidate == times.picked,
            "is_chosen": candidate == one.choice,
        }
        for candidate, sample in times.samples.items()
    ]
    wrong = [
        {**head, "kernel": candidate.kernel, "tuning": str(candidate.tuning), "problem": words}
        for candidate, words in times.problems.items()
    ]
    return timed + wrong
