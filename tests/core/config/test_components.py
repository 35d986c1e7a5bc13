"""Which setting holds for a slot?"""

import pytest
from deepinfer_core.config import load_settings
from deepinfer_core.config.components import ComponentsSettings, SlotSettings
from deepinfer_core.errors import ConfigError
from deepinfer_core.interfaces.kinds import ALL_SLOTS, OPTIONAL_SLOTS, SLOTS


def chosen(kind: str, slot: str, *overrides: str) -> tuple[object, dict[str, object], bool]:
    settings = load_settings(None, overrides, environ={}).settings
    found, exact = settings.components.chosen(kind, slot)
    return found.use, found.options, exact


def test_the_schema_has_exactly_the_kinds_and_slots_of_the_interfaces() -> None:
    assert set(ComponentsSettings.model_fields) == set(ALL_SLOTS)
    for kind, slots in ALL_SLOTS.items():
        of_kind = type(getattr(ComponentsSettings(), kind))
        own = set(of_kind.model_fields) - set(SlotSettings.model_fields)
        assert own == (set() if slots == (kind,) else set(slots))


def test_without_settings_every_slot_is_auto_and_optional_ones_are_empty() -> None:
    for kind, slots in ALL_SLOTS.items():
        for slot in slots:
            use = "auto" if kind in SLOTS else "none"
            assert chosen(kind, slot)[:2] == (use, {})


@pytest.mark.parametrize("kind", sorted(OPTIONAL_SLOTS))
def test_an_optional_slot_that_is_named_is_meant(kind: str) -> None:
    assert chosen(kind, kind, f"components.{kind}.use=a.x") == ("a.x", {}, True)


def test_a_slot_that_the_engine_needs_cannot_be_left_empty() -> None:
    with pytest.raises(ConfigError, match="the engine needs this component"):
        chosen("sampler", "sampler", "components.sampler.use=none")


def test_options_for_a_slot_that_stays_empty_are_refused() -> None:
    with pytest.raises(ConfigError, match="options are given, but no component"):
        chosen("drafter", "drafter", "components.drafter.options.a=1")


def test_none_does_not_stand_in_a_list() -> None:
    with pytest.raises(ConfigError, match='"none" stands alone'):
        chosen("drafter", "drafter", 'components.drafter.use=["a.x", "none"]')


def test_a_setting_of_the_kind_holds_for_each_slot_without_meaning_that_slot() -> None:
    assert chosen("gemm", "dense", "components.gemm.use=a.x") == ("a.x", {}, False)


def test_a_setting_of_the_only_slot_means_that_slot() -> None:
    assert chosen("sampler", "sampler", "components.sampler.use=a.x") == ("a.x", {}, True)


def test_a_slot_of_its_own_wins_over_its_kind() -> None:
    overrides = ("components.gemm.use=a.x", "components.gemm.dense.use=b.y")
    assert chosen("gemm", "dense", *overrides)[0] == "b.y"
    assert chosen("gemm", "grouped", *overrides)[0] == "a.x"


def test_a_slot_that_names_its_component_does_not_inherit_options() -> None:
    overrides = ("components.gemm.options.a=1", "components.gemm.dense.use=b.y")
    assert chosen("gemm", "dense", *overrides) == ("b.y", {}, True)


def test_a_slot_that_only_adds_options_keeps_the_component_of_its_kind() -> None:
    overrides = (
        "components.gemm.use=a.x",
        "components.gemm.options.a=1",
        "components.gemm.dense.options.b=2",
    )
    assert chosen("gemm", "dense", *overrides) == ("a.x", {"a": 1, "b": 2}, False)
    assert chosen("gemm", "grouped", *overrides) == ("a.x", {"a": 1}, False)


@pytest.mark.parametrize("weights", ["widened", "stored"])
def test_the_reference_product_takes_its_option(weights: str) -> None:
    override = f"components.gemm.options.weights={weights}"
    assert chosen("gemm", "dense", override)[1] == {"weights": weights}
