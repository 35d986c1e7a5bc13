"""Does a trial see every dependence of a row on something else, and nothing where there is none?"""

from collections.abc import Callable

import pytest
import torch
from deepinfer_core.engine.proof.trial import POOL_ROWS, Trial, batch_breach, repeat_breach
from deepinfer_core.interfaces.component import Plan

POOL = torch.arange(1.0, POOL_ROWS + 1)


def trial_of(
    run: Callable[[torch.Tensor], torch.Tensor],
    most_rows: int = 257,
    plan: Callable[[int], Plan] | None = None,
) -> Trial:
    return Trial(
        kind="gemm",
        slot="dense",
        operator="x",
        run=lambda order: [run(order)],
        most_rows=most_rows,
        plan=plan,
    )


def only_at(count: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Batches of one size differ."""
    return lambda order: POOL[order] + (len(order) == count)


@pytest.mark.parametrize("count", [2, 7, 8, 9, 64, 65, 257])
def test_a_batch_size_at_which_rows_differ_is_found(count: int) -> None:
    assert f"of {count} has other bits than alone" in batch_breach(trial_of(only_at(count)), 300)


@pytest.mark.parametrize(("rows", "found"), [(64, False), (65, True)])
def test_batches_are_as_large_as_a_step_may_be_and_no_larger(rows: int, found: bool) -> None:
    assert bool(batch_breach(trial_of(only_at(65)), rows)) is found
    assert bool(batch_breach(trial_of(only_at(65), most_rows=rows), 300)) is found


@pytest.mark.parametrize(
    "place",
    [lambda count: 0, lambda count: count - 1, lambda count: count // 2],
    ids=["first", "last", "middle"],
)
def test_a_place_at_which_a_row_differs_is_found(place: Callable[[int], int]) -> None:
    def run(order: torch.Tensor) -> torch.Tensor:
        x = POOL[order]
        if len(order) > 1:
            x[place(len(order))] += 1
        return x

    assert "has other bits than alone" in batch_breach(trial_of(run), 300)


def test_a_row_that_depends_on_the_contents_of_others_is_found() -> None:
    def run(order: torch.Tensor) -> torch.Tensor:
        return POOL[order] + (order.max() == POOL_ROWS - 1) * (order == 0)

    assert "has other bits than alone" in batch_breach(trial_of(run), 300)


def test_minus_zero_is_not_zero_and_nan_is_itself() -> None:
    assert batch_breach(trial_of(lambda order: torch.full((len(order),), torch.nan)), 300) == ""
    zero = trial_of(lambda order: torch.zeros(len(order)) * (1 if len(order) == 1 else -1))
    assert "has other bits" in batch_breach(zero, 300)


def test_a_single_row_that_differs_once_large_batches_were_planned_for_is_found() -> None:
    largest = [0]

    def run(order: torch.Tensor) -> torch.Tensor:
        largest[0] = max(largest[0], len(order))
        return POOL[order] + (len(order) == 1 and largest[0] > 64)

    assert batch_breach(trial_of(run), 300) == "row 0 of 1 has other bits than alone in output 0"


def test_a_plan_that_takes_the_promise_back_is_a_breach() -> None:
    def plan(rows: int) -> Plan:
        return Plan(max_rows=rows, batch_invariant=rows < 100)

    trial = trial_of(lambda order: POOL[order], plan=plan)
    assert batch_breach(trial, 99) == ""
    assert batch_breach(trial, 100) == "its plan for 100 rows says that it is not batch invariant"


def test_every_output_is_compared() -> None:
    trial = Trial(
        kind="gemm",
        slot="dense",
        operator="x",
        run=lambda order: [POOL[order], POOL[order].int() + (len(order) == 3)],
    )
    assert batch_breach(trial, 300).endswith("in output 1")


def test_outputs_that_are_one_buffer_overwritten_by_each_call_are_compared() -> None:
    buffer = torch.empty(257)

    def run(order: torch.Tensor) -> torch.Tensor:
        buffer[: len(order)] = POOL[order] + (len(order) == 3)
        return buffer[: len(order)]

    assert "of 3 has other bits" in batch_breach(trial_of(run), 300)
    assert repeat_breach(trial_of(lambda order: POOL[order]), 300) == ""


def test_a_second_call_that_gives_other_bits_is_found() -> None:
    calls = [0]

    def run(order: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return POOL[order] + calls[0] // 3

    assert "other bits the second time" in repeat_breach(trial_of(run), 300)
    assert repeat_breach(trial_of(only_at(9)), 300) == ""
