"""Is the layer bound the sum of what each operator cannot avoid?"""

from dataclasses import replace

import pytest
from deepinfer_core.bench.layers.bound import Rates, StepBound, step_bound
from deepinfer_core.bench.layers.work import Load, Operator, Storage
from deepinfer_core.testing.tiny import tiny_test_config

CONFIG = tiny_test_config()
STORAGE = Storage(
    dense=2, expert=0.5, plain=2, activation=2, window_row=66, entry_row=36, index_row=17
)
LOAD = Load(sequences=3, rows=2, start=9, drawn=1, experts=5)
RATES = Rates(copy_bytes_per_s=1000.0, flops_per_s=10_000.0, host_bytes_per_s=1e9)


@pytest.mark.parametrize(("moved", "flops", "seconds"), [(500, 4999, 0.5), (500, 5001, 0.5001)])
def test_an_operator_takes_the_longer_of_two_times(moved: int, flops: int, seconds: float) -> None:
    operator = Operator(name="x", moved_bytes=moved, flops=flops)
    assert RATES.operator_s(operator) == pytest.approx(seconds)


def test_operators_of_all_layers_are_summed() -> None:
    # Twelve layers: each moves 13,824 bytes in its second pass over the streams.
    times = step_bound(CONFIG, LOAD, STORAGE, RATES).by_operator
    assert times["experts.streams_out"] == pytest.approx(12 * 13.824)
    # One product in each: 77,568 bytes against 589,824 operations.
    assert times["experts.gate_up"] == pytest.approx(12 * 77.568)
    assert times["sampler"] == pytest.approx(3 * 4096 * 4 / 1000)


def test_the_bound_is_the_sum_of_its_operators() -> None:
    bound = step_bound(CONFIG, LOAD, STORAGE, RATES)
    assert bound.seconds == pytest.approx(sum(bound.by_operator.values()))


def test_rows_from_the_host_bound_a_step_only_if_they_take_longer_than_all_else() -> None:
    # Two tables, six columns a row, 33 bytes each, six rows.
    bytes_from_host = 2 * 6 * 33 * 6
    slow = step_bound(CONFIG, LOAD, STORAGE, replace(RATES, host_bytes_per_s=0.1))
    assert slow.host_s == slow.seconds == pytest.approx(10 * bytes_from_host)
    assert StepBound(by_operator={"a": 2.0, "b": 1.0}, host_s=2.9).seconds == 3.0


def test_the_drafter_is_no_part_of_the_bound() -> None:
    without = tiny_test_config(
        num_nextn_predict_layers=0,
        compress_ratios=list(CONFIG.text_config.compress_ratios[:12]),
        dspark_target_layer_ids=[],
    )
    bounds = [step_bound(config, LOAD, STORAGE, RATES) for config in (CONFIG, without)]
    assert bounds[0] == bounds[1]
