"""Do figures have the fields of the interface and the values of the runs?"""

from typing import Any

import pytest
from deepinfer_core.bench.bounds import Bounds
from deepinfer_core.bench.figures import Figure, Reference
from deepinfer_core.bench.latency import latency_figures
from deepinfer_core.bench.machine_rates import MachineRates
from deepinfer_core.bench.model_cost import ModelCost
from deepinfer_core.bench.running import RunTimes
from deepinfer_core.bench.stamp import Stamp
from deepinfer_core.bench.throughput import throughput_figures

STAMP = Stamp(hardware="a machine", date="2026-01-02", commit="abc")
BOUNDS = Bounds(
    cost=ModelCost(parameters=1, step_bytes=100, row_flops=0, head_flops=0),
    rates=MachineRates(read_bytes_per_s=1000.0, flops_per_s=1.0, matrix_dtype="float32"),
)
"""A step takes at least 0.1 s."""


def times(elapsed_s: float, **changes: Any) -> RunTimes:
    usual: dict[str, Any] = {
        "elapsed_s": elapsed_s,
        "first_token_s": (0.5, 0.7),
        "gaps_s": (0.2, 0.3),
        "prompt_tokens": 30,
        "cached_tokens": 0,
        "fed_tokens": (10, 20),
        "output_tokens": (4, 4),
    }
    return RunTimes(**usual | changes)


@pytest.mark.parametrize("kind", ["bound", "peer"])
def test_an_object_has_exactly_the_fields_of_the_interface(kind: Any) -> None:
    reference = Reference(kind=kind, name="what", value=8.0)
    found = Figure(name="n", value=2.0, unit="s", reference=reference).to_json(STAMP)
    assert found == {
        "name": "n",
        "value": 2.0,
        "unit": "s",
        kind: {"name": "what", "value": 8.0},
        "ratio": 0.25,
        "hardware": "a machine",
        "date": "2026-01-02",
        "commit": "abc",
    }


def test_throughput_is_that_of_the_run_with_the_median_time() -> None:
    runs = [times(9.0), times(2.0), times(4.0)]
    figures = throughput_figures(runs, BOUNDS, load_name="x=1", batch_size=2)
    assert {one.name: one.value for one in figures} == {
        "throughput.requests[x=1]": 0.5,
        "throughput.prompt_tokens[x=1]": 7.5,
        "throughput.output_tokens[x=1]": 2.0,
        "throughput.total_tokens[x=1]": 9.5,
    }
    # Four steps of 0.1 s at least, so the engine came to a tenth of the bound.
    assert [one.ratio for one in figures] == pytest.approx([0.1] * 4, rel=1e-12)


def test_latency_has_three_percentiles_of_each_duration_over_all_runs() -> None:
    runs = [times(1.0), times(3.0, first_token_s=(0.9, 0.1), gaps_s=(0.4, 0.1))]
    figures = latency_figures(runs, BOUNDS, load_name="x=1")
    assert {one.name.removesuffix("[x=1]"): one.value for one in figures} == {
        "latency.batch.p50": 1.0,
        "latency.batch.p90": 3.0,
        "latency.batch.p99": 3.0,
        "latency.first_token.p50": 0.5,
        "latency.first_token.p90": 0.9,
        "latency.first_token.p99": 0.9,
        "latency.inter_token.p50": 0.2,
        "latency.inter_token.p90": 0.4,
        "latency.inter_token.p99": 0.4,
    }
    assert {one.unit for one in figures} == {"s"}


def test_answers_of_one_token_have_no_gaps_to_report() -> None:
    runs = [times(1.0, gaps_s=(), output_tokens=(1, 1))]
    names = {one.name.split(".")[1] for one in latency_figures(runs, BOUNDS, load_name="")}
    assert names == {"batch", "first_token"}


def test_a_gap_is_bounded_by_a_step_for_all_only_if_all_answers_end_together() -> None:
    cost = ModelCost(parameters=1, step_bytes=0, row_flops=1, head_flops=0)
    counting = Bounds(cost=cost, rates=BOUNDS.rates)

    def gap_bound(outputs: tuple[int, ...]) -> float:
        runs = [times(1.0, output_tokens=outputs)]
        return latency_figures(runs, counting, load_name="")[-1].reference.value

    assert gap_bound((4, 4)) == 2.0
    assert gap_bound((4, 3)) == 1.0
