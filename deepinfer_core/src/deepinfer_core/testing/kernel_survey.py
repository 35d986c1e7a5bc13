"""How many mistakes of a kernel's author do a backend's kernel cases notice?

``python -m deepinfer_core.testing.kernel_survey deepinfer_nvidia.kernels.catalogue:catalogue
--seeds 0 1 2 3 4 --count 200`` prints the share of each seed and every survivor. One core needs
half a minute for the cases without mistakes, and a minute for 200 mistakes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import torch

from deepinfer_core.testing.kernel_cases import KernelCase, all_cases, complaints
from deepinfer_core.testing.tiles import Program
from deepinfer_core.testing.tiles.subjects import FileSubject, complaint, translated
from deepinfer_core.testing.tiles.survey import Outcome, caught_share, survey

if TYPE_CHECKING:
    from deepinfer_core.interfaces.operators.catalogue import KernelCatalogue

__all__ = ["main", "report", "subjects"]

_LIMIT_S = 5.0
"""Of the processor: several times as much as the slowest case takes."""

_INPUTS = 2
"""Fresh inputs for each case: what one draw misses by luck, another may find."""


def subjects(catalogue: KernelCatalogue, folder: Path, *, seed: int) -> list[FileSubject]:
    """Every kernel of a backend's catalogue, with all its small cases.

    Args:
        catalogue: whose kernels.
        folder: where changed files are written.
        seed: of the inputs.

    Raises:
        ValueError: a case fails without any mistake, so that it would notice everything.
    """
    groups: dict[str, list[KernelCase]] = defaultdict(list)
    for case in all_cases():
        if case.small and case.operator in catalogue.operators:
            groups[case.operator].append(case)
    made = (_subject(catalogue, groups[name], folder, seed) for name in groups)
    return [_require_sound(subject) for subject in made]


def _subject(
    catalogue: KernelCatalogue, cases: Sequence[KernelCase], folder: Path, seed: int
) -> FileSubject:
    operator = cases[0].operator
    original = sys.modules[catalogue.load(operator).__module__]

    def make(module: Any, key: tuple[Any, Any]) -> Any:
        return module.build(*key)

    def keys(spec: Any) -> list[tuple[Any, Any]]:
        tunings = (catalogue.tune(operator, spec, 0), *catalogue.also(operator, spec))
        return [(spec, tuning) for tuning in tunings]

    checks = [(case.spec, _check_of(case, seed + n)) for n in range(_INPUTS) for case in cases]
    return FileSubject(
        name=operator,
        path=catalogue.folder / f"{operator}.py",
        package=original.__name__.rpartition(".")[0],
        make=make,
        original=original,
        checks=[(key, check) for spec, check in checks for key in keys(spec)],
        folder=folder,
    )


def _require_sound(subject: FileSubject) -> FileSubject:
    keys = dict.fromkeys(key for key, _ in subject.checks)
    built = {key: translated(subject.make(subject.original, key)) for key in keys}
    for key, check in subject.checks:
        if found := complaint(built[key], check):
            message = f"a case of {subject.name} fails without a mistake: {found}"
            raise ValueError(f"{message}; make the case right for every seed first")
    return subject


def _check_of(case: KernelCase, seed: int) -> Any:
    """The case on inputs of its own."""
    given = case.arguments(torch.Generator().manual_seed(seed))
    expected = case.expect({name: tensor.clone() for name, tensor in given.items()})

    def check(program: Program) -> list[str]:
        results = {name: tensor.clone() for name, tensor in given.items()}
        program.run(results, limit_s=_LIMIT_S, refuse_doubled_stores=True)
        return complaints(case, given, expected, results)

    return check


def report(outcomes: Sequence[Outcome], seed: int) -> str:
    """The share, how many mistakes came to which end, and the survivors."""
    ends = ("caught", "survived", "equivalent", "stillborn")
    counts = [f"{sum(one.verdict == end for one in outcomes)} {end}" for end in ends]
    lines = [f"seed {seed}: {caught_share(outcomes):.1%} ({', '.join(counts)})"]
    return "\n  ".join([*lines, *(str(one) for one in outcomes if one.verdict == "survived")])


def _catalogue(text: str) -> Callable[[], KernelCatalogue]:
    """What makes the catalogue that ``text`` names."""
    try:
        found: object = resolve_name(text)
    except (AttributeError, ImportError, ValueError) as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} names no catalogue: {error}; write module:function"
        ) from error
    if not callable(found):
        raise argparse.ArgumentTypeError(f"{text!r} is no function; write module:function")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Survey a backend, one seed after the other.

    Returns:
        Exit code: 0 if every seed's share is at least 95 %, or 1.
    """
    parser = argparse.ArgumentParser(description="Judge kernel cases by the mistakes they notice.")
    parser.add_argument(
        "catalogue", type=_catalogue, help="module:function of the backend's kernel catalogue"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of the mistakes")
    parser.add_argument("--count", type=int, default=200, help="mistakes judged for each seed")
    chosen = parser.parse_args(arguments)
    shares = []
    with tempfile.TemporaryDirectory() as folder:
        found = subjects(chosen.catalogue(), Path(folder), seed=0)
        for seed in chosen.seeds:
            outcomes = survey(found, seed=seed, count=chosen.count)
            shares.append(caught_share(outcomes))
            sys.stdout.write(report(outcomes, seed) + "\n")
            sys.stdout.flush()
    return 0 if min(shares) >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
