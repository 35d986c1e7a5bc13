"""What the gate calls a difference, on equal and on unlike platforms."""

import math
from dataclasses import replace

import pytest
from deepinfer_core.engine.gate.baseline import Baseline, Measurement, SampleScore
from deepinfer_core.engine.gate.comparison import (
    compare,
    disagreements,
    platform_differences,
    strays,
)

WHOLE = "cpu/semantic/cache-plain/prefill/whole"
DECODE = "cpu/semantic/cache-plain/decode"
PRODUCTION = "cpu/production/cache-quantised/prefill/whole"


def with_nats(
    measurement: Measurement, sample: str, position: int, nats: float, *names: str
) -> Measurement:
    """The same with one likelihood replaced, under the named conditions."""

    def changed(old: SampleScore) -> SampleScore:
        if old.id != sample:
            return old
        values = list(old.nats)
        values[position - 1] = nats
        return replace(old, nats=tuple(values))

    conditions = dict(measurement.conditions)
    for name in names:
        scores = conditions[name]
        conditions[name] = replace(scores, samples=tuple(map(changed, scores.samples)))
    return replace(measurement, conditions=conditions)


def elsewhere(measurement: Measurement) -> Measurement:
    return replace(measurement, platform=replace(measurement.platform, vector="DEFAULT"))


def test_the_same_bits_are_no_difference(baseline: Baseline, measurement: Measurement) -> None:
    assert compare(baseline, measurement) == []
    assert compare(baseline, elsewhere(measurement)) == []


def test_on_the_same_platform_one_bit_is_a_difference_and_is_located(
    baseline: Baseline, measurement: Measurement
) -> None:
    moved = math.nextafter(3.0, 4.0)
    found = compare(baseline, with_nats(measurement, "tales/1", 2, moved, WHOLE, DECODE))
    assert [(one.condition, one.sample, one.position) for one in found] == [
        (WHOLE, "tales/1", 2),
        (DECODE, "tales/1", 2),
    ]
    assert "3.0000000000000004 nats, was 3.0" in found[0].what


def test_bits_that_cancel_in_the_sum_are_a_difference(
    baseline: Baseline, measurement: Measurement
) -> None:
    moved = with_nats(measurement, "tales/0", 1, 2.0, PRODUCTION)
    moved = with_nats(moved, "tales/0", 3, 1.5, PRODUCTION)
    [one] = compare(baseline, moved)
    assert (one.sample, one.position) == ("tales/0", 1)


# The plain tolerance of the sum of tales/0, 3.6 over three tokens, is 1.2e-5 / sqrt(3) of it. That
# of the total, 6.85 over five, is less: 5e-6 / sqrt(5). So the other sample, 3.25 over two, moves
# the other way by nearly as much.
@pytest.mark.parametrize(("share", "is_different"), [(0.9, False), (1.1, True)])
def test_on_another_platform_the_sum_of_a_sample_may_move_by_the_tolerance(
    baseline: Baseline, measurement: Measurement, share: float, is_different: bool
) -> None:
    move = share * 1.2e-5 / math.sqrt(3) * 3.6
    moved = with_nats(elsewhere(measurement), "tales/0", 2, 0.1 + move, WHOLE, DECODE)
    moved = with_nats(moved, "tales/1", 1, 0.25 - 0.8 * move, WHOLE, DECODE)
    found = compare(baseline, moved)
    wanted = [(WHOLE, "tales/0", 2), (DECODE, "tales/0", 2)] if is_different else []
    assert [(one.condition, one.sample, one.position) for one in found] == wanted


def test_on_another_platform_all_samples_must_not_move_in_one_direction(
    baseline: Baseline, measurement: Measurement
) -> None:
    # 6.85 * 5e-6 / sqrt(5) = 1.53e-5.
    near = with_nats(elsewhere(measurement), "tales/0", 2, 0.1 + 1.5e-5, WHOLE, DECODE)
    far = with_nats(elsewhere(measurement), "tales/0", 2, 0.1 + 1.6e-5, WHOLE, DECODE)
    assert compare(baseline, near) == []
    assert ["all samples together" in one.what for one in compare(baseline, far)] == [True, True]


def test_quantised_conditions_have_the_wider_tolerance_elsewhere(
    baseline: Baseline, measurement: Measurement
) -> None:
    # 0.2 / sqrt(5) of the total 7.375 is 0.6597.
    near = with_nats(elsewhere(measurement), "tales/0", 1, 2.159, PRODUCTION)
    far = with_nats(elsewhere(measurement), "tales/0", 1, 2.160, PRODUCTION)
    assert compare(baseline, near) == []
    assert [one.condition for one in compare(baseline, far)] == [PRODUCTION]


OURS = "acme/acme.fast/semantic/cache-plain/prefill/whole"


def of_a_backend(measurement: Measurement, move: float) -> Measurement:
    """One condition of another device, whose first likelihood is off."""
    moved = with_nats(measurement, "tales/0", 1, 1.5 + move, WHOLE)
    return replace(moved, conditions={OURS: moved.conditions[WHOLE]})


# Three quarters of what the total may move; a sample may move more.
@pytest.mark.parametrize(("move", "is_different"), [(1.1e-5, False), (1.6e-5, True)])
def test_a_backend_is_held_to_the_specification_whatever_its_own_baseline_says(
    baseline: Baseline, measurement: Measurement, move: float, is_different: bool
) -> None:
    found = list(strays(baseline, of_a_backend(measurement, move), {OURS: WHOLE}))
    assert [one.condition for one in found] == [OURS] * is_different
    assert all(one.what.startswith(f"against {WHOLE}: all samples together") for one in found)


def test_what_the_specification_did_not_measure_holds_nobody(
    baseline: Baseline, measurement: Measurement
) -> None:
    found = of_a_backend(measurement, 0)
    [one] = strays(baseline, found, {OURS: "cpu/absent"})
    assert one.what == "there is no cpu/absent to hold it to"
    other = replace(found.conditions[OURS], checkpoint="other")
    [one] = strays(baseline, replace(found, conditions={OURS: other}), {OURS: WHOLE})
    assert one.what == f"against {WHOLE}: another checkpoint: other here, c0ffee in the baseline"


def test_the_specification_is_not_held_to_its_own_baseline(
    baseline: Baseline, measurement: Measurement
) -> None:
    moved = with_nats(measurement, "tales/0", 1, 9.0, WHOLE)
    assert list(strays(baseline, moved, {name: name for name in moved.conditions})) == []


def test_conditions_of_equal_arithmetic_must_agree_in_every_bit_on_any_platform(
    baseline: Baseline, measurement: Measurement
) -> None:
    moved = with_nats(elsewhere(measurement), "tales/0", 3, math.nextafter(2.0, 3.0), DECODE)
    [one] = compare(baseline, moved)
    assert (one.condition, one.sample, one.position) == (DECODE, "tales/0", 3)
    assert WHOLE in one.what
    assert list(disagreements(moved)) == [one]


def with_condition(measurement: Measurement, name: str, *samples: SampleScore) -> Measurement:
    """One more condition of the arithmetic of the plain ones."""
    added = replace(measurement.conditions[WHOLE], samples=samples)
    return replace(measurement, conditions={**measurement.conditions, name: added})


def test_conditions_agree_where_both_have_scored_a_text(measurement: Measurement) -> None:
    later = SampleScore(id="tales/0", nats=(2.0, 7.0), first=3)
    other = SampleScore(id="tales/9", nats=(7.0,))
    assert list(disagreements(with_condition(measurement, "cpu/later", later, other))) == []


def test_a_condition_that_scores_a_later_part_is_held_to_its_positions(
    measurement: Measurement,
) -> None:
    later = SampleScore(id="tales/0", nats=(0.1, 2.5), first=2)
    [one] = disagreements(with_condition(measurement, "cpu/later", later))
    assert (one.condition, one.sample, one.position) == ("cpu/later", "tales/0", 3)
    assert WHOLE in one.what


def test_a_difference_is_located_in_the_text_and_not_in_what_is_scored_of_it(
    baseline: Baseline, measurement: Measurement
) -> None:
    name, old = "cpu/later", SampleScore(id="tales/8", nats=(0.5, 2.5), first=7)
    wanted = replace(baseline, measurement=with_condition(measurement, name, old))
    found = with_condition(measurement, name, replace(old, nats=(0.5, 2.0)))
    [one] = compare(wanted, found)
    assert (one.condition, one.sample, one.position) == (name, "tales/8", 8)
    [one] = compare(wanted, with_condition(measurement, name, replace(old, first=6)))
    assert one.what == "other samples, or other numbers of tokens"


@pytest.mark.parametrize("part", ["checkpoint", "tokenizer"])
def test_another_checkpoint_or_tokenizer_is_the_only_difference_named(
    baseline: Baseline, measurement: Measurement, part: str
) -> None:
    conditions = {
        name: replace(scores, **{part: "other"}) for name, scores in measurement.conditions.items()
    }
    moved = with_nats(measurement, "tales/0", 1, 9.0, PRODUCTION)
    found = compare(baseline, replace(moved, conditions=conditions))
    assert [one.what.startswith(f"another {part}: other here") for one in found] == [True] * 3


def test_another_component_is_a_difference(baseline: Baseline, measurement: Measurement) -> None:
    other = replace(measurement.conditions[WHOLE], components={"gemm.dense": "acme.fast"})
    conditions = {**measurement.conditions, WHOLE: other}
    [one] = compare(baseline, replace(measurement, conditions=conditions))
    assert one.condition == WHOLE
    assert one.what == "slot gemm.dense: acme.fast runs here, the baseline has core.reference"


def test_other_samples_are_a_difference(baseline: Baseline, measurement: Measurement) -> None:
    scores = measurement.conditions[WHOLE]
    fewer = {WHOLE: replace(scores, samples=scores.samples[:1])}
    [one] = compare(baseline, replace(measurement, conditions=fewer))
    assert one.what == "other samples, or other numbers of tokens"


def test_a_condition_without_baseline_is_a_difference_and_a_missing_one_is_not(
    baseline: Baseline, measurement: Measurement
) -> None:
    scores = measurement.conditions[WHOLE]
    [one] = compare(baseline, replace(measurement, conditions={"gpu/x": scores}))
    assert (one.condition, one.what) == ("gpu/x", "the baseline has no such condition")
    assert compare(baseline, replace(measurement, conditions={WHOLE: scores})) == []


def test_not_a_number_is_a_difference_everywhere(
    baseline: Baseline, measurement: Measurement
) -> None:
    moved = with_nats(measurement, "tales/0", 1, math.nan, PRODUCTION)
    for one in (moved, elsewhere(moved)):
        assert [d.condition for d in compare(baseline, one)] == [PRODUCTION]


def test_what_differs_between_platforms_is_named(
    baseline: Baseline, measurement: Measurement
) -> None:
    assert platform_differences(baseline, measurement) == []
    sets = replace(measurement.platform, instruction_sets=("avx",))
    assert platform_differences(baseline, replace(measurement, platform=sets)) == [
        "instruction_sets: avx here, avx avx2 in the baseline"
    ]
