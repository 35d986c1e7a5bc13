"""The components that a baseline belongs to."""

from deepinfer_core.builtin import deepinfer_components
from deepinfer_core.config import load_settings
from deepinfer_core.engine.gate.component_sets import COMPONENT_SETS, pins
from deepinfer_core.interfaces.kinds import SLOTS

NAMED = [
    "components.attention.use=core.reference",
    "components.gemm.use=core.reference",
    "components.transform.use=core.reference",
    "components.all_to_all.use=core.local",
    "components.sampler.use=core.reference",
]


def test_a_set_names_a_component_for_every_kind_but_the_device() -> None:
    known = {(spec.kind, spec.name) for spec in deepinfer_components()}
    for chosen in COMPONENT_SETS.values():
        assert chosen.keys() == SLOTS.keys() - {"device"}
        assert chosen.items() <= known


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


def test_another_device_has_components_of_its_own() -> None:
    assert pins("core.reference", load_settings(overrides=["device=acme"], environ={})) == []
