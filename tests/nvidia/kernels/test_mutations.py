"""How many mistakes of a kernel's author do its cases notice?"""

from collections import defaultdict
from typing import Any

import pytest
import torch
from deepinfer_core.testing.kernel_cases import KernelCase, all_cases, complaints
from deepinfer_core.testing.seeds import seed_of
from deepinfer_core.testing.tiles import Program
from deepinfer_core.testing.tiles.survey import Subject, caught_share, survey
from deepinfer_nvidia.kernels.catalogue import catalogue

CATALOGUE = catalogue()
LIMIT_S = 20.0


def subject(operator: str, spec: Any, cases: list[KernelCase], seed: int) -> Subject:
    """A kernel for one spec with all small cases of that spec."""
    func = CATALOGUE.load(operator)(spec, CATALOGUE.tune(operator, spec))
    inputs = [(case, case.arguments(torch.Generator().manual_seed(seed))) for case in cases]
    rows = [
        (case, given, case.expect({name: tensor.clone() for name, tensor in given.items()}))
        for case, given in inputs
    ]

    def check(program: Program) -> list[str]:
        found: list[str] = []
        for case, given, expected in rows:
            results = {name: tensor.clone() for name, tensor in given.items()}
            program.run(results, limit_s=LIMIT_S)
            found += complaints(case, given, expected, results)
            if found:
                return found
        return found

    assert (cases[0].id, check(Program(func))) == (cases[0].id, [])
    return Subject(name=cases[0].id, func=func, check=check)


@pytest.mark.slow
def test_at_least_19_of_20_mistakes_are_noticed(request: pytest.FixtureRequest) -> None:
    groups: dict[tuple[str, Any], list[KernelCase]] = defaultdict(list)
    for case in all_cases():
        if case.small and case.operator in CATALOGUE.operators:
            groups[case.operator, case.spec].append(case)
    seed = seed_of(request)
    subjects = [subject(*key, cases, seed) for key, cases in groups.items()]
    outcomes = survey(subjects, seed=seed, count=200)
    survivors = [str(outcome) for outcome in outcomes if outcome.verdict == "survived"]
    assert caught_share(outcomes) >= 0.95, "\n".join(survivors)
