"""Is a malformed description refused where it is written?"""

import pickle
from collections.abc import Callable

import pytest
from deepinfer_core.plugin import ComponentSpec, VerbSpec

Make = Callable[..., ComponentSpec]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "fast"),
        ("name", "Acme.fast"),
        ("name", "acme.fast.er"),
        ("slots", "decode"),
        ("slots", ("",)),
        ("factory", "acme.attention.build"),
        ("factory", ""),
        ("probe", "acme probe"),
        ("options", "acme:"),
        ("facts", "acme:facts"),
        ("contract", 0),
        ("contract", "1"),
        ("contract", True),
        ("kind", 3),
        ("kind", ["sampler"]),
        ("kind", "Sampler"),
        ("properties", {"deterministic": "sometimes"}),
        ("properties", {"deterministc": "always"}),
        ("devices", "cpu"),
    ],
)
def test_a_malformed_field_is_refused_by_name(make_spec: Make, field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field if field != "properties" else "determinist"):
        make_spec(**{field: value})


def test_a_list_of_slots_becomes_a_tuple(make_spec: Make) -> None:
    assert make_spec(slots=["decode"]).slots == ("decode",)


def test_properties_cannot_be_changed_from_outside(make_spec: Make) -> None:
    given = {"deterministic": "always"}
    spec = make_spec(properties=given)
    given["deterministic"] = "never"
    assert spec.properties["deterministic"] == "always"
    with pytest.raises(TypeError):
        spec.properties["deterministic"] = "never"  # type: ignore[index]


def test_a_description_survives_pickling(make_spec: Make) -> None:
    spec = make_spec(properties={"deterministic": "always"}, devices=("cpu",))
    assert pickle.loads(pickle.dumps(spec)) == spec


@pytest.mark.parametrize("changes", [{"name": "Two words"}, {"module": "acme.cli:run"}])
def test_a_malformed_verb_is_refused(changes: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        VerbSpec(**{"name": "tune", "summary": "", "module": "acme.cli", **changes})
