"""Is a component judged by what it declares and by what its probe says, come what may?"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from deepinfer_core.plugin import DeviceFacts, ModelNeeds, ProbeContext
from deepinfer_core.plugin.loading import Offer
from deepinfer_core.plugin.probing import Candidate, judge

Make = Callable[..., Offer]
Install = Callable[..., Path]

CONTEXT = ProbeContext(
    device=DeviceFacts(device="cpu", capability=(9, 0)),
    needs=ModelNeeds(hidden_width=64),
    versions={"acme-rt": "2.1"},
)


def judged(
    *offers: Offer,
    context: ProbeContext = CONTEXT,
    strict: tuple[str, ...] = (),
    timeout_s: float = 30.0,
) -> list[Candidate]:
    return judge(offers, context, strict, timeout_s)


def test_a_component_without_a_probe_is_usable(make_offer: Make) -> None:
    [found] = judged(make_offer())
    assert found.usable
    assert found.score == 0


@pytest.mark.parametrize("contract", [2, 3])
def test_a_newer_contract_is_a_mismatch_that_shows_both_numbers(
    make_offer: Make, contract: int
) -> None:
    [found] = judged(make_offer(contract=contract))
    assert found.judgement == "contract-mismatch"
    assert found.reason == f"speaks revision {contract} of attention, this core accepts 1"


@pytest.mark.parametrize(("contract", "usable"), [(1, False), (2, True), (3, True), (4, False)])
def test_the_current_contract_and_the_one_before_are_accepted(
    make_offer: Make, monkeypatch: pytest.MonkeyPatch, contract: int, usable: bool
) -> None:
    monkeypatch.setattr("deepinfer_core.plugin.probing.CONTRACTS", {"attention": 3})
    [found] = judged(make_offer(contract=contract))
    assert found.usable is usable
    assert usable or "accepts 2 and 3" in found.reason


def test_an_unknown_kind_is_a_mismatch(make_offer: Make) -> None:
    [found] = judged(make_offer(kind="telepathy"))
    assert found.judgement == "contract-mismatch"
    assert "telepathy" in found.reason


def test_an_unknown_slot_is_a_mismatch(make_offer: Make) -> None:
    [found] = judged(make_offer(slots=("decode", "encode")))
    assert found.judgement == "contract-mismatch"
    assert "encode" in found.reason


def test_a_component_for_another_device_is_unusable_without_asking_it(make_offer: Make) -> None:
    [found] = judged(make_offer(devices=("nvidia",), probe="absent:probe"))
    assert found.judgement == "unusable"
    assert found.reason == "runs on nvidia; the device is cpu"
    assert found.fix == 'set device = "nvidia"'


def test_a_device_of_another_name_is_unusable_without_asking_it(make_offer: Make) -> None:
    offer = make_offer(
        "acme.gpu", kind="device", slots=("device",), devices=("acme",), probe="absent:probe"
    )
    [found] = judged(offer)
    assert (found.judgement, found.reason) == (
        "unusable",
        "answers to acme; the device is cpu",
    )
    assert found.fix == 'set device = "acme"'


def test_a_device_without_a_name_answers_to_none(make_offer: Make) -> None:
    [found] = judged(make_offer("acme.gpu", kind="device", slots=("device",), devices=()))
    assert (found.reason, found.fix) == ("answers to no device; the device is cpu", "")


@pytest.mark.parametrize(
    ("promise", "usable"), [("always", True), ("on_request", True), ("never", False), (None, False)]
)
def test_a_strict_property_needs_a_promise(
    make_offer: Make, promise: str | None, usable: bool
) -> None:
    properties = {"deterministic": promise} if promise else {}
    [found] = judged(make_offer(properties=properties), strict=("deterministic",))
    assert found.usable is usable
    assert usable or found.reason == "does not promise deterministic"


def test_one_name_from_two_distributions_makes_both_unusable(make_offer: Make) -> None:
    offers = make_offer("acme.fast", "one"), make_offer("acme.fast", "two")
    for found in judged(*offers):
        assert found.judgement == "unusable"
        assert found.reason == "one and two both offer attention acme.fast"


def test_the_same_name_in_another_kind_is_no_clash(make_offer: Make) -> None:
    offers = make_offer("acme.x", "one"), make_offer("acme.x", "two", kind="gemm", slots=("dense",))
    assert all(found.usable for found in judged(*offers))


def test_a_device_whose_facts_are_missing_is_unusable_and_says_why(make_offer: Make) -> None:
    facts = DeviceFacts(device="cpu", problem="acme.facts ended with -6", fix="start it again")
    offer = make_offer("acme.cpu", kind="device", slots=("device",), devices=("cpu",))
    [found] = judged(offer, context=replace(CONTEXT, device=facts))
    assert (found.reason, found.fix) == ("acme.facts ended with -6", "start it again")


PROBES = """
    import os, time
    from deepinfer_core.plugin import Verdict

    def see(ctx):
        return Verdict(True, ctx.needs.hidden_width, f"{ctx.device.capability} {ctx.versions}")

    def refuse(ctx): return Verdict(False, reason="too old", fix="buy a new one")
    def lacks(ctx): return Verdict(False, reason="no compiler", mendable=True)
    def broken(ctx): raise KeyError("deep")
    def leaves(ctx): raise SystemExit(4)
    def wrong(ctx): return True
    def nothing(ctx): pass
    def aborts(ctx): os.abort()
    def hangs(ctx): time.sleep(60)
"""


@pytest.fixture
def probe(install: Install, make_offer: Make) -> Callable[[str], Offer]:
    install("acme", PROBES, group="some.other")
    return lambda name: make_offer(f"acme.{name}", probe=f"acme_module:{name}")


def test_a_probe_sees_the_device_the_needs_and_the_versions(probe: Callable[[str], Offer]) -> None:
    [found] = judged(probe("see"))
    assert found.usable
    assert found.score == 64
    assert found.reason == "(9, 0) {'acme-rt': '2.1'}"


def test_a_refusal_keeps_its_reason_and_its_fix(probe: Callable[[str], Offer]) -> None:
    [found] = judged(probe("refuse"))
    assert (found.judgement, found.reason, found.fix) == ("unusable", "too old", "buy a new one")
    assert not found.mendable


def test_a_refusal_says_that_the_user_can_mend_it(probe: Callable[[str], Offer]) -> None:
    [found] = judged(probe("lacks"))
    assert (found.usable, found.mendable) == (False, True)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("broken", "KeyError: 'deep'"),
        ("leaves", "SystemExit: 4"),
        ("wrong", "gave bool, expected Verdict"),
        ("nothing", "gave NoneType, expected Verdict"),
        ("absent", "AttributeError"),
        ("aborts", "acme_module:aborts ended with -6"),
    ],
)
def test_a_probe_that_breaks_is_failed_and_the_next_one_still_runs(
    probe: Callable[[str], Offer], name: str, reason: str
) -> None:
    broken, fine = judged(probe(name), probe("see"))
    assert broken.judgement == "probe-failed"
    assert reason in broken.reason
    assert fine.usable


def test_a_hanging_probe_is_failed_after_its_time(probe: Callable[[str], Offer]) -> None:
    [found] = judged(probe("hangs"), timeout_s=0.5)
    assert found.judgement == "probe-failed"
    assert found.reason == "acme_module:hangs no answer within 0.5 s"


def test_candidates_keep_the_order_of_the_offers(probe: Callable[[str], Offer]) -> None:
    offers = [probe("see"), probe("aborts"), probe("refuse")]
    offers.insert(1, replace(probe("see"), spec=replace(probe("see").spec, probe="", name="a.b")))
    assert [found.spec.name for found in judged(*offers)] == [o.spec.name for o in offers]


def test_a_probe_of_the_core_that_raises_is_a_state_too(make_offer: Make) -> None:
    offer = make_offer("acme.x", "deepinfer-core", probe="deepinfer_core:absent")
    [found] = judged(offer)
    assert found.judgement == "probe-failed"
    assert "AttributeError" in found.details
