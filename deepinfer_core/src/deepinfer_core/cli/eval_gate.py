"""Are the numbers still those of the baseline, and how is the baseline changed?

``eval ppl`` compares and leaves the file alone; ``eval refresh`` rewrites it, for a stated reason.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepinfer_core.cli.generation import (
    add_model_arguments,
    model_settings,
    open_llm,
    progress_of,
)
from deepinfer_core.cli.output import print_json, print_table
from deepinfer_core.cli.parser import UsageError
from deepinfer_core.errors import ConfigError, EngineError

if TYPE_CHECKING:
    from deepinfer_core.engine.gate.baseline import Baseline, ConditionScores, Measurement
    from deepinfer_core.engine.gate.comparison import Difference
    from deepinfer_core.engine.gate.conditions import Condition
    from deepinfer_core.engine.gate.texts import Selection
    from deepinfer_core.engine.llm import LLM

__all__ = ["add_gate_actions"]

_BASELINE = Path("tests", "data", "quality_gate.json")
_TEXTS = "heldout.jsonl"
_PER_SOURCE = 3
_MAX_TOKENS = 144
"""Longer than a window of 128 positions and a ring of 134."""
_LONG_PER_SOURCE = 1
_LONG_TOKENS = 288
"""A prompt of two whole blocks, and what is scored behind it."""


def add_gate_actions(actions: argparse._SubParsersAction[Any]) -> None:
    """Declare both actions among those of ``eval``."""
    ppl = actions.add_parser("ppl", help="the gate: exit 1 if a likelihood is not the baseline's")
    _add_common(ppl)
    ppl.add_argument("--only", metavar="TEXT", help="only conditions whose name holds this")
    ppl.set_defaults(act=_ppl)

    refresh = actions.add_parser("refresh", help="measure anew and rewrite the baseline")
    _add_common(refresh)
    refresh.add_argument("--reason", required=True, metavar="TEXT", help="kept in the baseline")
    add = refresh.add_argument
    add("--texts", metavar="FILE", help=f"relative to the baseline; default: as now, or {_TEXTS}")
    add("--per-source", type=int, metavar="N", help="documents of each source; default: as now")
    add("--max-tokens", type=int, metavar="N", help="tokens of a document; default: as now")
    add("--long-per-source", type=int, metavar="N", help="long texts of each source; 0: none")
    add("--long-tokens", type=int, metavar="N", help="tokens of a long text; default: as now")
    refresh.set_defaults(act=_refresh)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--baseline", type=Path, default=_BASELINE, metavar="FILE", help=f"default {_BASELINE}"
    )
    parser.add_argument("--json", action="store_true", help="as data")
    add_model_arguments(parser)


def _ppl(args: argparse.Namespace) -> int:
    from deepinfer_core.engine.gate.baseline_file import read_baselines
    from deepinfer_core.engine.gate.comparison import compare, platform_differences, strays
    from deepinfer_core.engine.gate.conditions import REFERENCE_DEVICE, conditions_of

    device = model_settings(args).settings.device
    baselines = read_baselines(args.baseline)
    baseline = _of_device(baselines, device, args.baseline)
    conditions = conditions_of(device)
    chosen = [one for one in conditions if (args.only or "") in one.name("")]
    if not chosen:
        names = ", ".join(one.name("").lstrip("/") for one in conditions)
        raise UsageError(f"no condition's name holds {args.only!r}", hint=names)
    measured = _measure(args, baseline.measurement.selection, chosen)
    differences = compare(baseline, measured)
    if REFERENCE_DEVICE in baselines:
        held_to = {one.name(device): one.reference_name for one in chosen}
        differences += strays(baselines[REFERENCE_DEVICE], measured, held_to)
    inexact = platform_differences(baseline, measured)
    if args.json:
        print_json(_as_data(measured, inexact, differences))
    else:
        _print_comparison(measured, inexact, differences)
    return 1 if differences else 0


def _of_device(baselines: Mapping[str, Baseline], device: str, path: Path) -> Baseline:
    if device not in baselines:
        raise ConfigError(
            f"{path} has no baseline of device {device}, but of {', '.join(baselines)}",
            hint=f"deepinfer eval refresh --set device={device} makes one",
        )
    return baselines[device]


def _refresh(args: argparse.Namespace) -> int:
    from deepinfer_core.engine.gate.baseline import TOLERANCES, Baseline, Refresh
    from deepinfer_core.engine.gate.baseline_file import read_baselines, write_baselines
    from deepinfer_core.engine.gate.conditions import REFERENCE_DEVICE, conditions_of
    from deepinfer_core.engine.gate.work_tree import clean_commit

    if not args.reason.strip():
        raise UsageError("--reason is empty", hint="say why the numbers change")
    folder = args.baseline.parent
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder", hint="name the file with --baseline")
    commit = clean_commit(folder)
    device = model_settings(args).settings.device
    baselines = read_baselines(args.baseline) if args.baseline.exists() else {}
    old = baselines.get(device)
    like = old or baselines.get(REFERENCE_DEVICE)
    selection = _selection(args, like.measurement.selection if like else None)
    conditions = conditions_of(device)
    measured = _measure(args, selection, list(conditions))
    event = Refresh(reason=args.reason.strip(), commit=commit)
    if old is None:
        new = Baseline(measurement=measured, tolerances=TOLERANCES, history=(event,))
    else:
        new = replace(old, measurement=measured, history=(*old.history, event))
    baselines[device] = new
    names = {one.name(device): one.reference_name for one in conditions}
    _check_refresh(baselines.get(REFERENCE_DEVICE), measured, names)
    write_baselines(args.baseline, baselines)
    rows = _changes(None if old is None else old.measurement, measured)
    if args.json:
        print_json({"reason": event.reason, "commit": commit, "samples": rows})
    else:
        _print_changes(rows)
    return 0


def _check_refresh(
    reference: Baseline | None, measured: Measurement, names: Mapping[str, str]
) -> None:
    """Raise EngineError for numbers that no baseline may have."""
    from deepinfer_core.engine.gate.comparison import disagreements, strays

    far = () if reference is None else strays(reference, measured, names)
    for one in (*disagreements(measured), *far):
        raise EngineError(
            f"{_where(one)}: {one.what}",
            hint="no reason makes this a baseline; the file is as it was",
        )


def _selection(args: argparse.Namespace, old: Selection | None) -> Selection:
    from deepinfer_core.engine.gate.texts import select

    def chosen(given: Any, before: Any, default: Any) -> Any:
        return given if given is not None else default if old is None else before

    return select(
        args.baseline.parent,
        chosen(args.texts, old and old.file, _TEXTS),
        per_source=chosen(args.per_source, old and old.per_source, _PER_SOURCE),
        max_tokens=chosen(args.max_tokens, old and old.max_tokens, _MAX_TOKENS),
        long_per_source=chosen(args.long_per_source, old and old.long_per_source, _LONG_PER_SOURCE),
        long_tokens=chosen(args.long_tokens, old and old.long_tokens, _LONG_TOKENS),
    )


def _measure(
    args: argparse.Namespace, selection: Selection, conditions: list[Condition]
) -> Measurement:
    from deepinfer_core.config import checkpoint_folder, load_settings
    from deepinfer_core.engine.gate.component_sets import pins
    from deepinfer_core.engine.gate.measuring import measure
    from deepinfer_core.engine.model_folder import read_config

    loaded = model_settings(args)
    progress = progress_of(loaded)

    def open_model(condition: Condition, overrides: list[str]) -> LLM:
        given = [*args.overrides, *pins(condition.components, loaded), *overrides]
        return open_llm(load_settings(args.config, given), progress)

    checkpoint = checkpoint_folder(loaded.settings.model.path)
    config = read_config(checkpoint, loaded.settings)
    return measure(open_model, checkpoint, config, args.baseline.parent, selection, conditions)


def _as_data(
    measured: Measurement, inexact: list[str], differences: list[Difference]
) -> dict[str, object]:
    return {
        "passed": not differences,
        "exact": not inexact,
        "platform_differences": inexact,
        "conditions": {
            name: {
                "ppl": scores.ppl,
                "nll_sum": scores.nll_sum.hex(),
                "components": dict(scores.components),
            }
            for name, scores in measured.conditions.items()
        },
        "differences": [asdict(one) for one in differences],
    }


def _print_comparison(
    measured: Measurement, inexact: list[str], differences: list[Difference]
) -> None:
    failed = {one.condition for one in differences}
    rows = [("condition", "perplexity", "compared", "result")]
    for name, scores in measured.conditions.items():
        how = "tolerances" if inexact else "every bit"
        result = "differs" if name in failed else "same"
        rows.append((name, f"{scores.ppl:.6f}", how, result))
    print_table(rows)
    for line in _components(measured):
        print(f"components: {line}")
    for line in inexact:
        print(f"another platform: {line}")
    for one in differences:
        print(": ".join(filter(None, [_where(one), one.what])))


def _components(measured: Measurement) -> list[str]:
    """Each choice of components that was measured, once."""
    choices = {
        ", ".join(f"{slot} {name}" for slot, name in scores.components.items()): None
        for scores in measured.conditions.values()
    }
    return list(choices)


def _where(one: Difference) -> str:
    sample = one.sample and f"sample {one.sample}"
    position = "" if one.position is None else f"position {one.position}"
    return ", ".join(filter(None, [one.condition, sample, position]))


def _changes(old: Measurement | None, new: Measurement) -> list[dict[str, Any]]:
    """Old and new sum of each sample, in nats; None where there was none."""
    rows = []
    for name, scores in new.conditions.items():
        before = _sums(old.conditions.get(name)) if old is not None else {}
        for sample in scores.samples:
            was = before.get(sample.id)
            delta = None if was is None else sample.nll_sum - was
            rows.append(
                {
                    "condition": name,
                    "sample": sample.id,
                    "old": was,
                    "new": sample.nll_sum,
                    "delta": delta,
                }
            )
    return rows


def _sums(scores: ConditionScores | None) -> dict[str, float]:
    return {} if scores is None else {sample.id: sample.nll_sum for sample in scores.samples}


def _print_changes(rows: list[dict[str, Any]]) -> None:
    def text(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    table = [("condition", "sample", "old nats", "new nats", "delta")]
    table += [
        (
            row["condition"],
            row["sample"],
            text(row["old"], ".6f"),
            text(row["new"], ".6f"),
            text(row["delta"], "+.3g"),
        )
        for row in rows
    ]
    print_table(table)
