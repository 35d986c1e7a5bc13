"""Which tuning was the fastest of all for a spec, and for which numbers of rows is it taken?

``choices`` of a table, which ``bench kernels --tune`` writes. An object has the choices of one spec
and where they were measured; an item of its ``rows`` says at how many rows, for which it
``serves`` (the fewest and the most, 0 as the most: any more), and what the fastest was. They hold
for the architecture of their file. All choices of a spec divide K alike, so that a row's bits do
not depend on the number of rows. Where they divide it otherwise than the widths say, they serve
all numbers of rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from typing import Any

from deepinfer_core.interfaces.operators.catalogue import operator_of
from deepinfer_core.interfaces.operators.gemm import GemmDenseSpec, GemmExpertsSpec
from deepinfer_core.interfaces.operators.tunings import FastestTuning, SpecChoices, TunedKernel

from deepinfer_nvidia.kernels.product_times import parts_of
from deepinfer_nvidia.kernels.tuning import KernelTuning
from deepinfer_nvidia.kernels.tuning.fields import read_tuning, require_names, wrong

__all__ = ["SPECS", "choice_for", "parts_in", "read_choices", "text_with"]

SPECS: dict[str, type[Any]] = {"gemm_dense": GemmDenseSpec, "gemm_experts": GemmExpertsSpec}
"""Operators that may have choices."""

_OF_SPEC = ("operator", "spec", "hardware", "date", "commit", "rows")
_OF_ROWS = ("at", "serves", "us", "spread_us", "kernel", "tuning")

Choices = dict[tuple[str, Any], tuple[FastestTuning, ...]]


def parts_in(tuning: KernelTuning) -> int:
    """Parts of K that are summed on their own: the one number of a tuning that changes bits."""
    found: int = getattr(tuning, "parts", 1)
    return found


def choice_for(choices: Sequence[FastestTuning], rows: int) -> FastestTuning | None:
    """What serves a number of rows; None if nothing does."""
    for one in choices:
        fewest, most = one.serves
        if fewest <= rows and (rows <= most or not most):
            return one
    return None


def read_choices(
    file: str, objects: list[dict[str, Any]], tuning_of: Callable[[str], type[KernelTuning]]
) -> Choices:
    """Read and check.

    Args:
        file: for messages.
        objects: of the JSON.
        tuning_of: from a kernel's name to its ``Tuning``.

    Raises:
        ConfigError: names what is unknown, missing or does not fit.
    """
    found: Choices = {}
    for number, given in enumerate(objects):
        place = f"{file}: choices[{number}]"
        require_names(place, given, _OF_SPEC)
        key = given["operator"], _read_spec(place, given["operator"], given["spec"])
        if key in found:
            raise wrong(place, "a spec for the second time", "a spec has one object")
        rows = enumerate(given["rows"])
        items = [_read_item(f"{place}.rows[{n}]", key[0], item, tuning_of) for n, item in rows]
        _require_same_bits(place, key[1], items)
        found[key] = tuple(items)
    return found


def _read_spec(place: str, operator: str, given: dict[str, Any]) -> Any:
    spec = SPECS.get(operator)
    if spec is None:
        raise wrong(place, f"an operator {operator!r}", f"there is {', '.join(SPECS)}")
    require_names(f"{place}.spec", given, tuple(one.name for one in fields(spec)))
    return spec(**given)


def _read_item(
    place: str,
    operator: str,
    item: dict[str, Any],
    tuning_of: Callable[[str], type[KernelTuning]],
) -> FastestTuning:
    require_names(place, item, _OF_ROWS)
    kernel = item["kernel"]
    if operator_of(kernel) != operator:
        raise wrong(place, f"a kernel {kernel!r}", f"it is one of {operator}")
    fewest, most = item["serves"]
    if not (1 <= fewest <= item["at"] and (item["at"] <= most or not most)):
        raise wrong(place, f"serves = {item['serves']}", f"{item['at']} rows are among them")
    tuning = read_tuning(place, item["tuning"], tuning_of(kernel))
    return FastestTuning(
        rows=item["at"],
        serves=(fewest, most),
        choice=TunedKernel(kernel=kernel, tuning=tuning),
        seconds=item["us"] / 1e6,
        spread_s=item["spread_us"] / 1e6,
    )


def _require_same_bits(place: str, spec: Any, items: Sequence[FastestTuning]) -> None:
    """As many parts everywhere; those of the widths, or no number of rows without a choice."""
    parts = {parts_in(one.choice.tuning) for one in items}
    if len(parts) > 1:
        raise wrong(place, f"parts = {sorted(parts)}", "K of a spec is divided in one way")
    usual = parts_of(spec) if isinstance(spec, GemmDenseSpec) else 1
    if parts <= {usual}:
        return
    ends = [0, *(one.serves[1] for one in items)]
    if [one.serves[0] - 1 for one in items] != ends[:-1] or ends[-1]:
        advice = f"tune all rows of a spec whose K is not in {usual} parts"
        raise wrong(place, "numbers of rows that nothing serves", advice)


def text_with(
    text: str, choices: Sequence[SpecChoices], *, hardware: str, date: str, commit: str
) -> str:
    """A table with other choices for some specs, an item a line.

    Args:
        text: of the table.
        choices: take the place of those that the table has for their specs.
        hardware: on which they were measured.
        date: ISO 8601.
        commit: of the program.
    """
    table = json.loads(text)
    stamp = {"hardware": hardware, "date": date, "commit": commit}
    new = [_to_json(one, stamp) for one in choices]
    named = [(one["operator"], one["spec"]) for one in new]
    old = [one for one in table["choices"] if (one["operator"], one["spec"]) not in named]
    lists = [
        f"  {json.dumps(kernel)}: {_lines(items, 3)}" for kernel, items in table["kernels"].items()
    ]
    objects = [_object(one) for one in (*old, *new)]
    head = [f" {json.dumps(name)}: {json.dumps(table[name])}," for name in ("hardware", "date")]
    kernels = ' "kernels": {\n' + ",\n".join(lists) + "\n },"
    chosen = ' "choices": [' + ("\n" + ",\n".join(objects) + "\n " if objects else "") + "]"
    return "\n".join(("{", *head, kernels, chosen, "}")) + "\n"


def _object(given: dict[str, Any]) -> str:
    head = ", ".join(f"{json.dumps(name)}: {json.dumps(given[name])}" for name in _OF_SPEC[:-1])
    return f'  {{{head}, "rows": {_lines(given["rows"], 3)}}}'


def _lines(items: Sequence[Any], indent: int) -> str:
    lines = ",\n".join(" " * indent + json.dumps(item) for item in items)
    return f"[\n{lines}\n{' ' * (indent - 1)}]"


def _to_json(given: SpecChoices, stamp: dict[str, str]) -> dict[str, Any]:
    rows = [
        {
            "at": one.rows,
            "serves": list(one.serves),
            "us": round(one.seconds * 1e6, 2),
            "spread_us": round(one.spread_s * 1e6, 2),
            "kernel": one.choice.kernel,
            "tuning": _said(one.choice.tuning),
        }
        for one in given.fastest
    ]
    return {"operator": given.operator, "spec": asdict(given.spec), **stamp, "rows": rows}


def _said(tuning: KernelTuning) -> dict[str, Any]:
    """Fields that are not what they would be anyway."""
    return {
        one.name: getattr(tuning, one.name)
        for one in fields(tuning)
        if one.name not in ("pass_configs", "cores") and getattr(tuning, one.name) != one.default
    }
