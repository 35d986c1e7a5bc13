"""How far has each kernel of a backend been shown to work?

Four rungs, each higher than the one before: ``interpreted`` (equal to its twin on a CPU),
``lowered`` (the compiler makes text of it for every architecture), ``compiled`` (nvcc makes a
cubin, and no register is spilled), ``measured`` (it ran on a device, equal to its twin; from the
backend's own record, with its date). Wrong and refused are said in words; nothing that was not
done looks done.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from deepinfer_core.testing.kernel_cases import KernelCase, cases_of, complaints
from deepinfer_core.testing.tiles import InterpretedKernels, TileFault
from deepinfer_core.testing.tiles.cubin import compile_cubin, find_nvcc
from deepinfer_core.testing.tiles.lowering import lower

if TYPE_CHECKING:
    from deepinfer_core.interfaces.operators.catalogue import KernelCatalogue
    from deepinfer_core.testing.tiles.kept import KeptResults

__all__ = ["KernelEvidence", "evidence", "interpreted_complaints"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEvidence:
    """The rungs of one kernel, each as words.

    Attributes:
        kernel: name of its operator.
        backend: whose it is.
        interpreted: how many cases are equal to the twin, or which are not.
        lowered: architectures, or why one is refused.
        compiled: registers of each cubin, or why there is none, or which kernel spills some.
        measured: date, hardware and commit of the record; ``no`` without one.
    """

    kernel: str
    backend: str
    interpreted: str
    lowered: str
    compiled: str
    measured: str

    @property
    def is_right(self) -> bool:
        """Whether nothing that was tried went wrong; what cannot be tried here is not wrong."""
        count, _, word = self.interpreted.partition(" ")
        is_equal = count.isdecimal() and word == "cases"
        return is_equal and not self.lowered.startswith("no") and "no:" not in self.compiled

    def to_json(self) -> dict[str, str]:
        """The object that ``deepinfer bench kernels --evidence --json`` lists; an interface."""
        return asdict(self)


def evidence(
    catalogue: KernelCatalogue, operators: Iterable[str], *, kept: KeptResults | None = None
) -> Iterator[KernelEvidence]:
    """Climb the rungs, one kernel after the other; seconds to a minute each.

    Args:
        catalogue: of the backend.
        operators: names from the catalogue.
        kept: where results of unchanged kernels are found again.
    """
    kernels, record = InterpretedKernels(), _record(catalogue)
    for operator in operators:
        small = [case for case in cases_of(operator) if case.small]
        yield KernelEvidence(
            kernel=operator,
            backend=catalogue.backend,
            interpreted=_interpreted(catalogue, kernels, small),
            lowered=_lowered(catalogue, small, kept),
            compiled=_compiled(catalogue, small, kept),
            measured=_measured(record.get(operator)),
        )


def interpreted_complaints(
    catalogue: KernelCatalogue, kernels: InterpretedKernels, case: KernelCase, seed: int
) -> list[str]:
    """What is wrong with a kernel when a case is interpreted; an empty list if nothing is.

    Raises:
        TileFault: the kernel did something that no kernel may do.
    """
    given = case.arguments(torch.Generator().manual_seed(seed))
    expected = case.expect({name: tensor.clone() for name, tensor in given.items()})
    results = {name: tensor.clone() for name, tensor in given.items()}
    tuning = catalogue.tune(case.operator, case.spec)
    kernels.call(catalogue.load(case.operator), case.spec, tuning, **results)
    return complaints(case, given, expected, results)


def _interpreted(
    catalogue: KernelCatalogue, kernels: InterpretedKernels, cases: list[KernelCase]
) -> str:
    if not cases:
        return "no cases"
    for case in cases:
        try:
            wrong = interpreted_complaints(catalogue, kernels, case, zlib.crc32(case.id.encode()))
        except Exception as error:  # noqa: BLE001 - a builder is its backend's own code
            return f"{case.name}: {_words(error)}"
        if wrong:
            return f"{case.name}: {wrong[0]}"
    return f"{len(cases)} cases"


def _lowered(catalogue: KernelCatalogue, cases: list[KernelCase], kept: KeptResults | None) -> str:
    try:
        for arch in catalogue.architectures:
            for function, configs in _functions(catalogue, cases):
                lower(function, arch, pass_configs=configs, kept=kept)
    except Exception as error:  # noqa: BLE001 - a builder is its backend's own code
        return f"no: {_words(error)}"
    return ", ".join(catalogue.architectures) if cases else "no cases"


def _compiled(catalogue: KernelCatalogue, cases: list[KernelCase], kept: KeptResults | None) -> str:
    if catalogue.dialect != "cuda":
        return "no compiler for this dialect"
    if find_nvcc() is None:
        return "no nvcc here"
    found = []
    for arch in catalogue.architectures:
        try:
            reports = [
                compile_cubin(lower(function, arch, pass_configs=configs, kept=kept), kept=kept)
                for function, configs in _functions(catalogue, cases)
            ]
            for report in reports:
                report.require_spills_within(0)
        except Exception as error:  # noqa: BLE001 - a builder is its backend's own code
            return f"no: {_words(error)}"
        if reports:
            registers = max(report.registers for report in reports)
            found.append(f"{arch}: {registers} registers, none spilled")
    return "; ".join(found) or "no cases"


def _functions(
    catalogue: KernelCatalogue, cases: list[KernelCase]
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Each different PrimFunc of the cases, with its compiler switches."""
    seen = set()
    for case in cases:
        tuning = catalogue.tune(case.operator, case.spec)
        if (case.spec, tuning) not in seen:
            seen.add((case.spec, tuning))
            build = catalogue.load(case.operator)
            yield build(case.spec, tuning), dict(getattr(tuning, "pass_configs", ()))


def _record(catalogue: KernelCatalogue) -> dict[str, dict[str, str]]:
    try:
        text = catalogue.measured.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    record: dict[str, dict[str, str]] = json.loads(text)
    return record


def _measured(entry: dict[str, str] | None) -> str:
    return "no" if entry is None else f"{entry['date']}, {entry['hardware']}, {entry['commit']}"


def _words(error: Exception) -> str:
    """A fault in its own words; anything else with its type, in one line."""
    text = " ".join(str(error).split())
    return text if isinstance(error, TileFault) else f"{type(error).__name__}: {text}"
