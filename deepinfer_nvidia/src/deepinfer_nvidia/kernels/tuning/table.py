"""Which tunings were measured for a kernel, and how long does each take?

One JSON file an architecture, read and checked once. ``kernels`` has a list for each kernel with
more than one tuning. An item of it has the fields of the kernel's ``Tuning`` under ``tuning``, and
beside it the figures by which ``choice`` chooses; ``instead_of`` names a kernel before which it is
never chosen. Another architecture uses this list of SM90 until
it has one of its own: a tuning changes how fast a kernel is, never what it computes.
``choices`` has what was the fastest of all for some widths and rows, see ``tuning.choices``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from deepinfer_core.interfaces.operators.tunings import FastestTuning

from deepinfer_nvidia.kernels.tuning import KernelTuning
from deepinfer_nvidia.kernels.tuning.choices import read_choices
from deepinfer_nvidia.kernels.tuning.fields import read_tuning, require_names, wrong

__all__ = ["FIGURES", "Measured", "Table", "entries", "read_table", "shipped_table", "shipped_text"]

FIGURES: dict[str, tuple[str, ...]] = {
    "attention_index_scores": ("rows_each", "least_scores"),
    "gemm_dense": ("few_us", "full_us"),
    "hopper/gemm_dense": ("few_us", "full_us", "tile_us"),
    "hopper/gemm_experts": ("core_us",),
}
"""Kernels that may have a list, and the figures of its items.

few_us, full_us: microseconds of a tile and 64 inputs where few cores are busy, and where all are;
tile_us: of what a tile needs beside that.
core_us: of 64 channels by 5120 inputs on a full core. rows_each, least_scores: for this many rows
of each sequence, and this many scores or more in a call.
"""

_FILE = "sm_90a.json"
_STAMP = ("hardware", "date")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One way to run a kernel.

    Attributes:
        kernel: its name.
        tuning: of the kernel.
        figures: by name, see ``FIGURES``.
        instead_of: a kernel that is always faster where it serves, or empty.
    """

    kernel: str
    tuning: KernelTuning
    figures: Mapping[str, float]
    instead_of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A file.

    Attributes:
        kernels: the list of each kernel that has one.
        choices: for widths that were measured by themselves, by operator and spec.
    """

    kernels: Mapping[str, tuple[Measured, ...]]
    choices: Mapping[tuple[str, Any], tuple[FastestTuning, ...]]


def entries(kernel: str) -> tuple[Measured, ...]:
    """The list of a kernel; empty if it has none."""
    return shipped_table().kernels.get(kernel, ())


@cache
def shipped_table() -> Table:
    """What launches choose by."""
    return read_table(_FILE, shipped_text(), _tuning_of)


def shipped_text() -> str:
    """JSON."""
    return files(__package__).joinpath(_FILE).read_text(encoding="utf-8")


def _tuning_of(kernel: str) -> type[KernelTuning]:
    package = __package__.rpartition(".")[0]
    found: type[KernelTuning] = import_module(f"{package}.{kernel.replace('/', '.')}").Tuning
    return found


def read_table(file: str, text: str, tuning_of: Callable[[str], type[KernelTuning]]) -> Table:
    """Read and check a table.

    Args:
        file: for messages.
        text: JSON.
        tuning_of: from a kernel's name to its ``Tuning``.

    Raises:
        ConfigError: names the kernel or the field that is unknown, missing or of another type.
    """
    found = json.loads(text)
    require_names(file, found, (*_STAMP, "kernels", "choices"))
    lists = found["kernels"]
    for kernel in lists:
        if kernel not in FIGURES:
            raise wrong(file, f"a kernel {kernel!r}", f"there is {', '.join(sorted(FIGURES))}")
    return Table(
        kernels={
            kernel: tuple(
                _measured(f"{file}: {kernel}[{number}]", kernel, item, tuning_of(kernel))
                for number, item in enumerate(items)
            )
            for kernel, items in lists.items()
        },
        choices=read_choices(file, found["choices"], tuning_of),
    )


def _measured(
    place: str, kernel: str, item: dict[str, Any], tuning: type[KernelTuning]
) -> Measured:
    names = FIGURES[kernel]
    instead_of = item.get("instead_of", "")
    if instead_of and instead_of not in FIGURES:
        raise wrong(place, f"instead_of = {instead_of!r}", "it names a kernel of the table")
    require_names(place, item, (*names, "tuning", *(["instead_of"] if instead_of else [])))
    for name in names:
        if type(item[name]) not in (int, float):
            raise wrong(place, f"{name} = {item[name]!r}", "it is a number")
    figures = MappingProxyType({name: float(item[name]) for name in names})
    return Measured(
        kernel=kernel,
        tuning=read_tuning(place, item["tuning"], tuning),
        figures=figures,
        instead_of=instead_of,
    )
