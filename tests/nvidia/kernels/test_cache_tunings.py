"""Do kernels of the caches compute the same under every tuning?

The default of each is run with all its cases; here are the ways through a kernel that it does not
take: several rows a tile, a copy of candidates that does not fit, blocks that are not held.
"""

from dataclasses import replace

import pytest
import torch
from deepinfer_core.testing.kernel_cases import KernelCase, cases_of, complaints
from deepinfer_core.testing.seeds import seed_of
from deepinfer_core.testing.tiles import InterpretedKernels
from deepinfer_nvidia.kernels import (
    attention_candidate_blocks,
    attention_index_scores,
    attention_select_top,
)

KERNELS = InterpretedKernels()


def small(operator: str) -> list[KernelCase]:
    return [case for case in cases_of(operator) if case.small]


def assert_right(module: object, case: KernelCase, tuning: object, seed: int) -> None:
    given = case.arguments(torch.Generator().manual_seed(seed))
    expected = case.expect({name: tensor.clone() for name, tensor in given.items()})
    results = {name: tensor.clone() for name, tensor in given.items()}
    KERNELS.call(module.build, case.spec, tuning, **results)  # type: ignore[attr-defined]
    assert complaints(case, given, expected, results) == []


@pytest.mark.parametrize(
    ("row_tile", "joined_rows", "steps"), [(2, 1, 1), (4, 2, 2), (8, 4, 3), (3, 3, 2)]
)
@pytest.mark.parametrize("case", small("attention_index_scores"), ids=lambda case: case.name)
def test_scores_are_right_with_any_tile(
    case: KernelCase, row_tile: int, joined_rows: int, steps: int, request: pytest.FixtureRequest
) -> None:
    """Tiles in which the sequence changes, and that reach behind the last row and entry."""
    tuning = replace(
        attention_index_scores.default_tuning(case.spec),
        row_tile=row_tile,
        joined_rows=joined_rows,
        steps=steps,
    )
    assert_right(attention_index_scores, case, tuning, seed_of(request))


@pytest.mark.parametrize("case", small("attention_select_top"), ids=lambda case: case.name)
def test_a_choice_is_right_where_candidates_do_not_fit(
    case: KernelCase, request: pytest.FixtureRequest
) -> None:
    """The digits then look at all scores again."""
    tuning = replace(
        attention_select_top.default_tuning(case.spec),
        threads=128,
        candidates=case.spec.top_entries,
        unroll=3,
    )
    assert_right(attention_select_top, case, tuning, seed_of(request))


@pytest.mark.parametrize("case", small("attention_candidate_blocks"), ids=lambda case: case.name)
def test_a_pool_is_right_where_blocks_are_not_held(
    case: KernelCase, request: pytest.FixtureRequest
) -> None:
    """Their best scores are then found in every pass."""
    tuning = replace(
        attention_candidate_blocks.default_tuning(case.spec), threads=128, held_blocks=1
    )
    assert_right(attention_candidate_blocks, case, tuning, seed_of(request))
