"""The table of conditions."""

from deepinfer_core.config import load_settings
from deepinfer_core.engine.gate.conditions import CONDITIONS


def test_names_are_distinct_and_say_what_is_run() -> None:
    names = [one.name("cpu") for one in CONDITIONS]
    assert len(set(names)) == len(names)
    assert "cpu/production/cache-quantised/prefill/7" in names
    assert "cpu/semantic/cache-plain/decode" in names


def test_only_conditions_without_any_rounding_have_the_sharp_tolerance() -> None:
    plain = {one.arithmetic for one in CONDITIONS if one.rounding == "plain"}
    assert plain == {"semantic/cache-plain"}


def test_settings_are_accepted_and_give_each_path_its_steps() -> None:
    for one in CONDITIONS:
        settings = load_settings(overrides=one.overrides([3, 5]), environ={}).settings
        numerics, engine = settings.model.numerics, settings.engine
        assert numerics.cache_quantisation == one.cache_quantisation
        assert numerics.activation_quantisation == (one.numerics == "production")
        chunk = one.chunk_tokens
        assert engine.max_num_batched_tokens == (8 if chunk is None else chunk)
        assert engine.max_num_seqs == (2 if chunk is None else 1)
        assert engine.max_model_len == 6
        assert set(settings.strict) == {"batch_invariant", "deterministic"}
