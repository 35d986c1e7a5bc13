"""A kernel that doubles numbers, with tunings that a test makes up."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from deepinfer_core.interfaces.operators.catalogue import KernelCatalogue, Kernels
from deepinfer_core.interfaces.operators.tunings import KernelTunings, SpecChoices, TunedKernel
from deepinfer_core.testing.kernel_cases import KernelCase, poisoned
from deepinfer_core.testing.kernel_cases.tuned import TunedLoad


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What the kernel multiplies by, and which bits it is said to have."""

    name: str
    factor: float = 2.0
    bits: int = 1


def kernel(name: str, **more: Any) -> TunedKernel:
    return TunedKernel(kernel="transform_double", tuning=Tuning(name=name, **more))


def load(rows: int, serves: tuple[int, int]) -> TunedLoad:
    case = KernelCase(
        operator="transform_double",
        name=f"{rows} rows",
        spec="spec",
        arguments=lambda generator: {
            "x_T": torch.randn(rows, generator=generator),
            "out_T": poisoned(rows, dtype=torch.float32),
        },
        expect=lambda given: {"out_T": given["x_T"] * 2},
        bounds=lambda given, expected: {"out_T": torch.full((rows,), 0.01)},
        rows=rows,
        moved_bytes=8 * rows,
        peer=("torch.add", lambda given: given["x_T"] + given["x_T"]),
    )
    return TunedLoad(case=case, serves=serves)


class FakeKernels(Kernels):
    """Multiplies by the factor of the tuning, and remembers whose."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def call(self, build: Any, spec: Any, tuning: Any, /, **tensors: torch.Tensor) -> None:
        self.called.append(tuning.name)
        if not tuning.factor:
            raise RuntimeError("no such tile\nat all")
        torch.mul(tensors["x_T"], tuning.factor, out=tensors["out_T"])


class FakeTunings(KernelTunings):
    """Takes the first of some candidates."""

    operators = ("transform_double",)

    def __init__(self, *all_: TunedKernel) -> None:
        self._all = all_

    def candidates(self, operator: str, spec: Any) -> Sequence[TunedKernel]:
        return self._all

    def picked(self, operator: str, spec: Any, rows: int) -> TunedKernel:
        return self._all[0]

    def bits(self, one: TunedKernel) -> Hashable:
        return one.tuning.bits

    def table(
        self, choices: Sequence[SpecChoices], *, hardware: str, date: str, commit: str
    ) -> str:
        names = [one.choice.tuning.name for spec in choices for one in spec.fastest]
        return f"{' '.join(names)}; {hardware}; {date}; {commit}"


def catalogue(kernels: Kernels, tunings: KernelTunings | None = None) -> KernelCatalogue:
    return KernelCatalogue(
        backend="fake",
        dialect="cuda",
        architectures=(),
        folder=Path(__file__).parent,
        load=lambda operator: lambda spec, tuning: operator,
        tune=lambda kernel, spec, rows: rows,
        open=lambda cache_dir: kernels,
        measured=Path("nowhere"),
        tunings=None if tunings is None else lambda: tunings,
    )
