"""Do the values that probes see survive the way into a child process?"""

import json
from dataclasses import asdict

import pytest
from deepinfer_core.plugin import DeviceFacts, ModelNeeds, Verdict


def test_facts_survive_json() -> None:
    facts = DeviceFacts(
        device="acme", capability=(9, 0), instruction_sets=("avx2", "fma"), extra={"driver": "1.2"}
    )
    assert DeviceFacts.from_json(json.loads(json.dumps(facts.to_json()))) == facts


def test_what_a_vendor_adds_to_its_facts_is_kept_as_extra() -> None:
    assert DeviceFacts.from_json({"device": "acme", "driver": "1.2"}).extra == {"driver": "1.2"}


def test_facts_of_the_wrong_type_are_refused() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        DeviceFacts.from_json({"device": "acme", "count": "many"})


def test_needs_survive_json() -> None:
    needs = ModelNeeds(hidden_width=64, weight_formats=("mxfp4", "fp8"), batch_invariant=True)
    assert ModelNeeds.from_json(json.loads(json.dumps(asdict(needs)))) == needs


def test_a_refusal_without_a_reason_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a reason"):
        Verdict(False)


@pytest.mark.parametrize("fields", [(1,), (True, "high"), (True, 1, None), (True, 1, "", "", 1)])
def test_a_verdict_of_other_types_is_refused(fields: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="a verdict is"):
        Verdict(*fields)  # type: ignore[arg-type]
