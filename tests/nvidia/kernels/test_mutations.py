"""How many mistakes of a kernel's author do its cases notice?"""

from collections import defaultdict
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from deepinfer_core.testing.kernel_cases import KernelCase, all_cases, complaints
from deepinfer_core.testing.seeds import seed_of
from deepinfer_core.testing.tiles import Program
from deepinfer_core.testing.tiles.subjects import FileSubject
from deepinfer_core.testing.tiles.survey import caught_share, survey
from deepinfer_nvidia.kernels.catalogue import catalogue

CATALOGUE = catalogue()
PACKAGE = "deepinfer_nvidia.kernels"
LIMIT_S = 20.0
INPUTS = 2
"""Fresh inputs for each case: what one draw misses by luck, another may find."""


def check_of(case: KernelCase, seed: int) -> Any:
    """The case on inputs of its own."""
    given = case.arguments(torch.Generator().manual_seed(seed))
    expected = case.expect({name: tensor.clone() for name, tensor in given.items()})

    def check(program: Program) -> list[str]:
        results = {name: tensor.clone() for name, tensor in given.items()}
        program.run(results, limit_s=LIMIT_S)
        return complaints(case, given, expected, results)

    return check


def subject(operator: str, cases: list[KernelCase], seed: int, folder: Path) -> FileSubject:
    """A kernel's file with all its small cases."""

    def make(module: Any, spec: Any) -> Any:
        return module.build(spec, CATALOGUE.tune(operator, spec))

    return FileSubject(
        name=operator,
        path=CATALOGUE.folder / f"{operator}.py",
        package=PACKAGE,
        make=make,
        original=import_module(f"{PACKAGE}.{operator}"),
        checks=[(case.spec, check_of(case, seed + n)) for n in range(INPUTS) for case in cases],
        folder=folder,
    )


@pytest.mark.slow
def test_at_least_19_of_20_mistakes_are_noticed(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    groups: dict[str, list[KernelCase]] = defaultdict(list)
    for case in all_cases():
        if case.small and case.operator in CATALOGUE.operators:
            groups[case.operator].append(case)
    seed = seed_of(request)
    subjects = [subject(operator, cases, seed, tmp_path) for operator, cases in groups.items()]
    outcomes = survey(subjects, seed=seed, count=200)
    survivors = [str(outcome) for outcome in outcomes if outcome.verdict == "survived"]
    assert caught_share(outcomes) >= 0.95, "\n".join(survivors)
