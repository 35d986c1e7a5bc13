"""Is the least time of a load that of reading and multiplying, whichever is longer?"""

import pytest
from deepinfer_core.bench.bounds import Bounds, Work, decode_work, load_work, prompt_work
from deepinfer_core.bench.machine_rates import MachineRates
from deepinfer_core.bench.model_cost import ModelCost

COST = ModelCost(parameters=1, step_bytes=1000, row_flops=100, head_flops=20)


def bounds(*, read: float, flops: float) -> Bounds:
    rates = MachineRates(read_bytes_per_s=read, flops_per_s=flops, matrix_dtype="bfloat16")
    return Bounds(cost=COST, rates=rates)


@pytest.mark.parametrize(
    ("outputs", "batch_size", "steps"),
    [
        ((5,), 1, 5),  # one request draws one token a step
        ((5, 5), 2, 5),
        ((5, 5), 1, 10),
        ((5, 5, 5), 2, 8),  # 15 tokens, two a step
        ((9, 1, 1), 2, 9),  # the longest answer decides
        ((1, 1), 16, 1),
    ],
)
def test_a_load_needs_as_many_steps_as_its_answers_allow(
    outputs: tuple[int, ...], batch_size: int, steps: int
) -> None:
    assert load_work(40, outputs, batch_size).steps == steps


def test_the_last_token_of_a_request_is_drawn_and_not_fed() -> None:
    assert load_work(40, (5, 3), 2) == Work(steps=5, rows=40 + 4 + 2, drawn=8)
    assert load_work(40, (1,), 1) == prompt_work(40)


def test_the_longer_of_reading_and_multiplying_is_the_bound() -> None:
    work = decode_work(2)  # 1,000 bytes, 240 operations
    reading = bounds(read=500.0, flops=1000.0).time(work)
    assert (reading.kind, reading.value) == ("bound", 2.0)
    assert "reading the weights" in reading.name
    multiplying = bounds(read=1e9, flops=120.0).time(work)
    assert multiplying.value == 2.0
    assert "multiplying each row" in multiplying.name
    assert "bfloat16" in multiplying.name


def test_a_rate_is_bounded_by_its_amount_over_the_least_time() -> None:
    found = bounds(read=500.0, flops=1000.0).rate(8, decode_work(2))
    assert found.value == 4.0
