"""The components that a baseline belongs to."""

import pytest
from deepinfer_core.builtin import deepinfer_components
from deepinfer_core.config import load_settings
from deepinfer_core.engine.gate.component_sets import AUTO, component_sets, pins
from deepinfer_core.interfaces.kinds import SLOTS

NAMED = [
    "components.attention.use=core.reference",
    "components.gemm.use=core.reference",
    "components.transform.use=core.reference",
    "components.all_to_all.use=core.local",
    "components.sampler.use=core.reference",
]


@pytest.mark.parametrize("device", ["cpu", "nvidia"])
def test_a_set_names_a_component_for_every_kind_but_the_device(device: str) -> None:
    own = {(spec.kind, spec.name) for spec in deepinfer_components()}
    for chosen in component_sets(device).values():
        assert chosen.uses.keys() == SLOTS.keys() - {"device"}
        assert {use for use in chosen.uses.items() if use[1].startswith("core.")} <= own


def test_what_nobody_has_chosen_is_pinned() -> None:
    loaded = load_settings(environ={})
    assert pins("core.reference", loaded) == NAMED
    fast = pins("core.cpu", loaded)
    assert fast == [f"{one.partition('=')[0]}=core.cpu" for one in NAMED]
    load_settings(overrides=[*NAMED, *fast], environ={})


def test_a_users_choice_is_left_wherever_it_was_made() -> None:
    given = load_settings(
        overrides=["components.gemm.use=acme.gemm"],
        environ={"DEEPINFER_COMPONENTS__SAMPLER__USE": "acme.draw"},
    )
    assert pins("core.reference", given) == NAMED[:1] + NAMED[2:4]


def test_each_device_has_sets_of_its_own_and_others_what_auto_picks() -> None:
    loaded = load_settings(overrides=["device=nvidia"], environ={})
    tile = [one.replace("core.reference", "nvidia.tilelang") for one in NAMED]
    assert pins("nvidia.tilelang", loaded) == tile
    assert list(component_sets("acme")) == [AUTO]
    assert pins(AUTO, load_settings(overrides=["device=acme"], environ={})) == []
