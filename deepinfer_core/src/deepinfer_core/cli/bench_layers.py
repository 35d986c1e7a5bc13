"""How fast are the model's layers at their true sizes, next to their bound?

Weights are random and made on the device, so nothing is read; everything else is what serves. The
small scale runs anywhere in seconds, and shows that this works, not how fast a device is.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepinfer_core.cli.generation import progress_of
from deepinfer_core.cli.output import check_writable, print_json, print_table
from deepinfer_core.cli.parser import UsageError, add_settings_arguments, settings_from

if TYPE_CHECKING:
    from deepinfer_core.bench.layers.idle import Trace
    from deepinfer_core.bench.layers.results import LayerResult
    from deepinfer_core.bench.layers.scales import Scale
    from deepinfer_core.config import LoadedSettings

__all__ = ["add_layers_action"]

_LISTS = ("prompts", "sequences", "contexts", "rows")
_TOP = 20


def add_layers_action(actions: argparse._SubParsersAction[Any]) -> None:
    """Declare the action among those of ``bench``."""
    parser = actions.add_parser("layers", help="layers of true sizes against their bound")
    add = parser.add_argument
    add("--scale", choices=("true", "small"), default="true", help="sizes of model and loads")
    add("--layers", type=_count, metavar="N", help="layers to build; default: as many as fit")
    add("--prompts", type=_numbers, metavar="LIST", help="tokens of prompts, e.g. 512,4096")
    add("--sequences", type=_numbers, metavar="LIST", help="sequences of decode steps")
    add("--contexts", type=_numbers, metavar="LIST", help="tokens behind a decode step")
    add("--rows", type=_numbers, metavar="LIST", help="rows of a sequence in a decode step")
    add("--profile", type=_count, metavar="N", help="sequences whose steps are profiled")
    add("--json", action="store_true", help="one object a figure")
    add("--out", type=Path, metavar="FILE", help="write these objects to a file as well")
    add_settings_arguments(parser)
    parser.set_defaults(act=_run)


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a number from 1 on is wanted")
    return number


def _numbers(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        numbers = (0,)
    if numbers[0] < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r}: numbers from 1 on are wanted, with commas between them"
        )
    return numbers


def _run(args: argparse.Namespace) -> int:
    from deepinfer_core.bench.layers.scales import SCALES

    if args.out is not None:
        check_writable(args.out)
    chosen = {name: getattr(args, name) for name in _LISTS if getattr(args, name) is not None}
    scale = replace(SCALES[args.scale](), layers=args.layers, profiled=args.profile, **chosen)
    _check(scale)
    result = _measure(scale, settings_from(args), is_true=args.scale == "true")
    if args.out is not None:
        args.out.write_text(json.dumps(result.to_json(), indent=1) + "\n", encoding="utf-8")
    if args.json:
        print_json(result.to_json())
    else:
        _print(result)
    return 0


def _check(scale: Scale) -> None:
    if scale.traced not in scale.sequences:
        raise UsageError(
            f"asked for a profile of {scale.traced} sequences, found no decode steps of so many",
            hint=f"--profile takes one of {', '.join(map(str, scale.sequences))}; --sequences adds"
            " others",
        )
    for decoding in scale.decodings:
        if decoding.context < decoding.rows * decoding.steps:
            raise UsageError(
                f"--contexts {decoding.context} with --rows {decoding.rows}",
                hint=f"{decoding.steps} steps are run: give at least "
                f"{decoding.rows * decoding.steps} tokens",
            )


def _measure(scale: Scale, loaded: LoadedSettings, *, is_true: bool) -> LayerResult:
    from deepinfer_core.bench.layers.measuring import measure_layers

    if is_true and loaded.settings.device == "cpu":
        raise UsageError(
            "asked for layers of true sizes, found device = cpu",
            hint="name a device, e.g. --set device=nvidia, or --scale small",
        )
    return measure_layers(scale, loaded, progress_of(loaded))


def _print(result: LayerResult) -> None:
    rates = result.rates
    print(f"layers    {len(result.layers)} of {result.whole}: {_listed(result.layers)}")
    print(f"computed  by {result.components}")
    print(f"hardware  {result.stamp.hardware}")
    print(f"program   {result.stamp.commit}, {result.stamp.date}")
    print(
        f"rates     {rates.copy_bytes_per_s / 1e12:.3g} TB/s copied, "
        f"{rates.flops_per_s / 1e12:.4g} TFLOP/s, {rates.host_bytes_per_s / 1e9:.3g} GB/s from host"
    )
    print(f"weights   made in {result.built_s:.1f} s\n")
    rows = [("load", "ms", "bound ms", "of bound", "experts", "steps", "all layers ms")]
    mark = ", extrapolated" if len(result.layers) < result.whole else ""
    rows += [
        (
            str(item.load),
            f"{item.seconds * 1e3:.3f}",
            f"{item.bound_s * 1e3:.3f}",
            f"{item.bound_s / item.seconds:.2f}",
            f"{item.experts:.0f}",
            "recorded" if item.is_recorded else "launched",
            f"{item.extrapolated_s * 1e3:.1f}{mark}",
        )
        for item in result.measured
    ]
    print_table(rows)
    if result.trace is not None:
        _print_profile(result.served, result.trace)


def _listed(layers: tuple[int, ...]) -> str:
    return " ".join(map(str, layers))


def _print_profile(served: int, trace: Trace) -> None:
    between, idle = (_part(trace, share) for share in (trace.between_steps, trace.idle))
    print(
        f"\nengine    {served} requests, {trace.step_us:.1f} us a step: {between} between two"
        f" steps, {idle} with nothing on the device\n"
    )
    rows = [("share", "us a step", "calls a step", "activity")]
    for one in trace.top(_TOP):
        calls = f"{one.calls / trace.steps:.0f}"
        rows.append((f"{one.share:.3f}", f"{one.step_us:.1f}", calls, one.name))
    print_table(rows)


def _part(trace: Trace, share: float) -> str:
    """A share of a step in words."""
    return f"{trace.step_us * share:.1f} us or {share:.2%}"
