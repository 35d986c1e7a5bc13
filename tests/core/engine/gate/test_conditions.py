"""The table of conditions."""

from collections import defaultdict
from dataclasses import replace

from deepinfer_core.config import load_settings
from deepinfer_core.engine.gate.conditions import conditions_of

CONDITIONS = conditions_of("cpu")


def test_names_are_distinct_and_say_what_is_run() -> None:
    names = [one.name("cpu") for one in CONDITIONS]
    assert len(set(names)) == len(names)
    assert {
        "cpu/production/cache-quantised/prefill/7",
        "cpu/semantic/cache-plain/decode",
        "cpu/production/cache-quantised/decode/behind-257",
        "cpu/production/cache-quantised/decode/behind-257/64/turns",
        "cpu/production/cache-quantised/decode/behind-257/64/synchronous",
        "cpu/production/cache-quantised/decode/behind-257/snapshot",
        "cpu/semantic/cache-plain/decode/behind-257/bounded",
        "cpu/semantic/cache-plain/decode/behind-257/compact",
    } <= set(names)


def test_only_approximations_have_an_arithmetic_of_their_own() -> None:
    groups = defaultdict(set)
    for one in CONDITIONS:
        groups[one.arithmetic].add((one.reuse, one.replay))
    exact = {("none", "off"), ("snapshot", "off"), ("recompute", "off")}
    for front in ("", "core.cpu/"):
        assert groups[f"{front}production/cache-quantised"] == exact
        assert groups[f"{front}production/cache-quantised/bounded"] == {("bounded", "off")}
        masked = {("none", "mask"), ("none", "compact")}
        assert groups[f"{front}production/cache-quantised/replay-140"] == masked


def test_every_way_to_step_and_to_reuse_meets_another_of_its_arithmetic() -> None:
    """A condition that is alone is compared with the baseline only."""
    alone = {
        one.name("").removeprefix("/core.cpu")
        for one in CONDITIONS
        if sum(other.arithmetic == one.arithmetic for other in CONDITIONS) == 1
    }
    assert alone == {
        "/production/cache-plain/prefill/whole",
        "/production/cache-quantised/decode/behind-257/bounded",
        "/semantic/cache-quantised/prefill/whole",
        "/semantic/cache-plain/decode/behind-257/bounded",
        "/semantic/cache-plain/decode/behind-257/compact",
    }


def test_only_conditions_without_any_rounding_have_the_sharp_tolerance() -> None:
    plain = {one.arithmetic for one in CONDITIONS if one.rounding == "plain"}
    bare = {"", "/bounded", "/replay-140"}
    assert plain == {
        f"{front}semantic/cache-plain{end}" for front in ("", "core.cpu/") for end in bare
    }


def test_another_set_of_components_has_names_and_arithmetic_of_its_own() -> None:
    other = replace(CONDITIONS[0], components="acme.fast")
    assert other.name("cpu") == "cpu/acme.fast/production/cache-quantised/prefill/whole"
    assert other.arithmetic == "acme.fast/production/cache-quantised"


def test_settings_are_accepted_and_give_each_path_its_steps() -> None:
    for one in CONDITIONS:
        settings = load_settings(overrides=one.overrides([3, 5]), environ={}).settings
        numerics, engine = settings.model.numerics, settings.engine
        assert numerics.cache_quantisation == one.cache_quantisation
        assert numerics.activation_quantisation == (one.numerics == "production")
        chunk = one.chunk_tokens
        assert engine.max_num_batched_tokens == (8 if chunk is None else chunk)
        is_serial = one.path == "prefill" and chunk is not None
        assert engine.max_num_seqs == (1 if is_serial else 2)
        assert engine.max_model_len == 6
        assert set(settings.strict) == {"batch_invariant", "deterministic"}
        assert (engine.mixed_steps, engine.asynchronous) == (one.is_mixed, one.is_asynchronous)
        assert engine.prefix_cache == (one.reuse != "none")
        assert engine.snapshot_slots == (2 if one.reuse == "snapshot" else 0)
        assert engine.recovery == ("bounded" if one.reuse == "bounded" else "exact")
        assert engine.replay == one.replay
        assert engine.graphs


def test_a_device_with_recordings_is_measured_without_them_too() -> None:
    found = conditions_of("nvidia")
    [launched] = [one for one in found if not one.is_recorded]
    assert launched.name("nvidia") == (
        "nvidia/nvidia.tilelang/production/cache-quantised/decode/launched"
    )
    settings = load_settings(overrides=launched.overrides([3]), environ={}).settings
    assert not settings.engine.graphs


def test_kernels_in_bfloat16_are_measured_in_production_arithmetic() -> None:
    found = {(one.components, one.numerics) for one in conditions_of("nvidia")}
    assert found == {("nvidia.tilelang", "production")}


def test_every_condition_of_another_device_is_held_to_one_of_the_specification() -> None:
    specified = {one.name("cpu") for one in CONDITIONS if one.components == "core.reference"}
    for device in ("cpu", "nvidia", "acme"):
        found = conditions_of(device)
        assert len({one.name(device) for one in found}) == len(found)
        assert {one.reference_name for one in found} <= specified
