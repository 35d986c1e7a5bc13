"""How far has each kernel of a backend been shown to work?

Four rungs, each higher than the one before: ``interpreted`` (equal to its twin on a CPU),
``lowered`` (the compiler makes text of it for every architecture), ``compiled`` (nvcc makes a
cubin, and no more registers are spilled than the kernel states), ``measured`` (it ran on a device,
equal to its twin, and is unchanged since; from the backend's own record). Wrong and refused are
said in words; nothing that was not done looks done.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

import torch

from deepinfer_core.interfaces.operators.catalogue import is_tile_kernel, operator_of
from deepinfer_core.testing.kernel_record import content_of, entry_of, read_record
from deepinfer_core.testing.kernel_trials import KernelTrial, trials
from deepinfer_core.testing.tiles import InterpretedKernels, TileFault
from deepinfer_core.testing.tiles.cubin import CubinReport, compile_cubin, find_nvcc
from deepinfer_core.testing.tiles.kept import KeptResults
from deepinfer_core.testing.tiles.lowering import lower

if TYPE_CHECKING:
    from deepinfer_core.interfaces.operators.catalogue import KernelCatalogue

__all__ = ["KernelEvidence", "compiled_words", "evidence", "evidence_by"]

_TWIN = "not possible: its twin "


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEvidence:
    """The rungs of one kernel, each as words.

    Attributes:
        kernel: its name.
        backend: whose it is.
        content: checksum of what it is compiled from; empty if a builder raises.
        interpreted: how many cases are equal to the twin, or which are not; of a kernel that is not
            in the tile language, the one that is.
        lowered: architectures, or why one is refused.
        compiled: how many cubins, with registers and spilled bytes, or why there is none, or which
            kernel spills more than it states. All for the first architecture, one for others.
        measured: date, hardware and commit of the record; ``no`` without one, and with one of a
            kernel that has changed.
    """

    kernel: str
    backend: str
    content: str
    interpreted: str
    lowered: str
    compiled: str
    measured: str

    @property
    def is_right(self) -> bool:
        """Whether nothing that was tried went wrong; what cannot be tried here is not wrong."""
        count, _, word = self.interpreted.partition(" ")
        is_equal = (count.isdecimal() and word == "cases") or self.interpreted.startswith(_TWIN)
        return is_equal and not self.lowered.startswith("no") and self.is_compiled is not False

    @property
    def is_compiled(self) -> bool | None:
        """Whether every cubin was made and is good; None where that was not tried."""
        if self.compiled.startswith("no:"):
            return False
        return None if self.compiled.startswith("no") else True

    def to_json(self) -> dict[str, str]:
        """The object that ``deepinfer bench kernels --evidence --json`` lists; an interface."""
        return asdict(self)


def evidence(
    catalogue: KernelCatalogue, kernels: Iterable[str], *, kept: KeptResults | None = None
) -> Iterator[KernelEvidence]:
    """Climb the rungs, one kernel after the other; seconds to minutes each.

    Args:
        catalogue: of the backend.
        kernels: names from the catalogue.
        kept: where results of unchanged kernels are found again.
    """
    record = read_record(catalogue.measured)
    for kernel in kernels:
        found = list(_tried(catalogue, kernel))
        content = _content(catalogue, kernel)
        entry, is_same = entry_of(record, kernel, "measured", content)
        yield KernelEvidence(
            kernel=kernel,
            backend=catalogue.backend,
            content=content,
            interpreted=_interpreted(kernel, found),
            lowered=_lowered(catalogue, kernel, found, kept),
            compiled=compiled_words(catalogue, kernel, found, kept),
            measured=_measured(entry, is_same),
        )


def evidence_by(
    jobs: int, reference: str, kernels: Sequence[str], folder: Path | None
) -> Iterator[KernelEvidence]:
    """The same in several processes at once; kernels in their order.

    Args:
        jobs: processes; one is this one.
        reference: ``module:name`` of what gives the catalogue.
        kernels: names from the catalogue.
        folder: where results of unchanged kernels are kept, or None.
    """
    if jobs == 1:
        kept = KeptResults(folder) if folder else None
        yield from evidence(resolve_name(reference)(), kernels, kept=kept)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(partial(_evidence_of, reference, folder), kernels)


def _evidence_of(reference: str, folder: Path | None, kernel: str) -> KernelEvidence:
    kept = KeptResults(folder) if folder else None
    return next(evidence(resolve_name(reference)(), [kernel], kept=kept))


def _tried(catalogue: KernelCatalogue, kernel: str) -> Iterator[KernelTrial]:
    """Small cases, and each tuning that only another case has."""
    return (one for one in trials(catalogue, kernel) if one.case.small or not one.is_usual)


def _content(catalogue: KernelCatalogue, kernel: str) -> str:
    try:
        return content_of(catalogue, kernel)
    except Exception:  # noqa: BLE001 - a builder is its backend's own code; the rungs say what it says
        return ""


def _interpreted(kernel: str, found: list[KernelTrial]) -> str:
    if not found:
        return "no cases"
    if not is_tile_kernel(kernel):
        return f"{_TWIN}{operator_of(kernel)} is interpreted"
    kernels, usual = InterpretedKernels(), [trial for trial in found if trial.is_usual]
    for trial in usual:
        generator = torch.Generator().manual_seed(zlib.crc32(trial.case.id.encode()))
        try:
            wrong = trial.complaints(kernels, trial.case.arguments(generator))
        except Exception as error:  # noqa: BLE001 - a builder is its backend's own code
            return f"{trial.case.name}: {_words(error)}"
        if wrong:
            return f"{trial.case.name}: {wrong[0]}"
    return f"{len(usual)} cases"


def _lowered(
    catalogue: KernelCatalogue, kernel: str, found: list[KernelTrial], kept: KeptResults | None
) -> str:
    architectures = catalogue.architectures_of(kernel)
    try:
        for arch in architectures:
            for trial in _different(found):
                lower(trial.function(), arch, pass_configs=trial.pass_configs, kept=kept)
    except Exception as error:  # noqa: BLE001 - a builder is its backend's own code
        return f"no: {_words(error)}"
    return ", ".join(architectures) if found else "no cases"


def compiled_words(
    catalogue: KernelCatalogue,
    kernel: str,
    found: list[KernelTrial],
    kept: KeptResults | None = None,
) -> str:
    """The rung of compiling, in words; ``no: `` and why if a kernel is refused or spills too much.

    Args:
        catalogue: of the backend.
        kernel: its name in there.
        found: trials of it.
        kept: where results of unchanged kernels are found again.
    """
    if catalogue.dialect != "cuda":
        return "no compiler for this dialect"
    if find_nvcc() is None:
        return "no nvcc here"
    allowed, words = catalogue.limits(kernel).spilled_bytes, []
    for number, arch in enumerate(catalogue.architectures_of(kernel)):
        reports = []
        try:
            # Of a second architecture one function has to do: nvcc is what takes the time.
            for trial in _different(found)[: 1 if number else None]:
                text = lower(trial.function(), arch, pass_configs=trial.pass_configs, kept=kept)
                reports.append(compile_cubin(text, kept=kept))
                reports[-1].require_spills_within(allowed)
        except Exception as error:  # noqa: BLE001 - a builder is its backend's own code
            return f"no: {_words(error)}"
        if reports:
            words.append(f"{arch}: {_numbers(reports)}")
    return "; ".join(words) or "no cases"


def _numbers(reports: list[CubinReport]) -> str:
    registers = max(report.registers for report in reports)
    spilled = max(report.spilled_bytes for report in reports)
    end = f"at most {spilled} bytes spilled" if spilled else "none spilled"
    return f"{len(reports)} cubins, {registers} registers, {end}"


def _different(found: list[KernelTrial]) -> list[KernelTrial]:
    """One trial for each function."""
    return list({(trial.case.spec, trial.tuning): trial for trial in found}.values())


def _measured(entry: dict[str, str], is_same: bool) -> str:
    if not entry:
        return "no"
    words = f"{entry['date']}, {entry['hardware']}, {entry['commit']}"
    return words if is_same else f"no: it has changed since {words}"


def _words(error: Exception) -> str:
    """A fault in its own words; anything else with its type, in one line."""
    text = " ".join(str(error).split())
    return text if isinstance(error, TileFault) else f"{type(error).__name__}: {text}"
