"""Do figures say what was measured, what was extrapolated, and where time was lost?"""

import pytest
from deepinfer_core.bench.layers.bound import Rates
from deepinfer_core.bench.layers.idle import Activity, Trace
from deepinfer_core.bench.layers.loads import Decoding, Prompt
from deepinfer_core.bench.layers.results import LayerResult
from deepinfer_core.bench.layers.survey import Measured
from deepinfer_core.bench.stamp import Stamp

RESULTS = "Memcpy DtoH (Device -> Pinned)"
TRACE = Trace(
    activities=(
        Activity(name=RESULTS, start_us=0, end_us=10),
        Activity(name="a", start_us=12, end_us=60),
        Activity(name="b", start_us=70, end_us=100),
        Activity(name=RESULTS, start_us=100, end_us=110),
    )
)


def result(trace: Trace | None) -> LayerResult:
    decoding = Decoding(sequences=4, context=64, rows=1, steps=4)
    return LayerResult(
        stamp=Stamp(hardware="a device", date="2000-01-01", commit="abc"),
        components="x.y",
        layers=(0, 2, 5),
        whole=9,
        experts=16,
        rates=Rates(copy_bytes_per_s=1e12, flops_per_s=2e12, host_bytes_per_s=3e10),
        built_s=1.0,
        measured=[
            Measured(
                load=Prompt(tokens=64, chunk=48),
                seconds=0.008,
                bound_s=0.004,
                whole_bound_s=0.012,
                experts=15.6,
            ),
            Measured(
                load=decoding,
                seconds=0.002,
                bound_s=0.001,
                whole_bound_s=0.0025,
                experts=11.0,
                is_recorded=True,
            ),
        ],
        served=4,
        trace=trace,
    )


def test_each_load_has_its_time_and_that_of_all_layers_at_the_same_share() -> None:
    found = result(None).figures()
    prompt, whole_prompt, decode, whole_decode = found
    assert prompt.name == "layers.prompt[tokens=64,chunk=48,layers=3,steps=launched,components=x.y]"
    assert (prompt.value, prompt.reference.value) == (8, 4)
    assert prompt.reference.name == "layer bound with 16 of 16 experts a layer"
    # 12 ms at half of the bound.
    assert whole_prompt.name.startswith("layers.prompt.extrapolated[tokens=64,chunk=48,layers=9,")
    assert (whole_prompt.value, whole_prompt.reference.value) == pytest.approx((24, 12))
    assert decode.name == (
        "layers.decode[sequences=4,context=64,rows=1,layers=3,steps=recorded,components=x.y]"
    )
    assert whole_decode.value == pytest.approx(5)


def test_gaps_stand_against_the_same_time_without_them() -> None:
    between, idle = result(TRACE).figures()[4:]
    assert between.name == "layers.engine.between_steps[requests=4,layers=3,components=x.y]"
    assert (between.value, between.reference.value) == pytest.approx((0.1, 0.098))
    assert idle.name.startswith("layers.engine.idle[")
    assert (idle.value, idle.reference.value) == pytest.approx((0.1, 0.088))
    assert "12.00% of the time" in idle.reference.name


def test_the_profile_is_one_more_object() -> None:
    *figures, profile = result(TRACE).to_json()
    assert len(figures) == 6
    assert profile["name"] == "layers.profile[requests=4,layers=3,components=x.y]"
    assert profile["top"][0] == {
        "activity": "a",
        "share": round(48 / 88, 4),
        "step_us": 48,
        "calls": 1,
    }
    parts = ("steps", "step_us", "between_steps_us", "idle_us")
    assert [profile[part] for part in parts] == [1, 100, 2, 12]
    assert profile["rates"]["flops_per_s"] == 2e12
    assert {"hardware", "date", "commit"} < set(profile)


@pytest.mark.parametrize("trace", [None, Trace(activities=())])
def test_without_steps_in_the_record_there_is_no_figure_of_gaps(trace: Trace | None) -> None:
    assert len(result(trace).figures()) == 4
