"""Does a slot get the component that the configuration orders, and nothing else?"""

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest
from deepinfer_core.plugin.choice import SlotChoice, Wish, choose, slot_problems
from deepinfer_core.plugin.probing import Candidate

Make = Callable[..., Candidate]


def wish(use: str | tuple[str, ...] = "auto", slot: str = "decode", exact: bool = False) -> Wish:
    return Wish(kind="attention", slot=slot, use=use, exact=exact)


def picked(choice: SlotChoice) -> str | None:
    return choice.picked.spec.name if choice.picked else None


def states(choice: SlotChoice) -> dict[str, str]:
    return {row.candidate.spec.name: row.state for row in choice.rows}


@pytest.fixture
def three(make_candidate: Make) -> list[Candidate]:
    return [
        make_candidate(
            "nvidia.flash_mla",
            judgement="unusable",
            reason="needs capability 10.0, found 9.0",
            fix="nvidia.tilelang runs on 9.0",
        ),
        make_candidate("nvidia.tilelang", 50, reason="sm_90a kernels"),
        make_candidate("core.reference"),
    ]


def test_auto_takes_the_highest_score(make_candidate: Make) -> None:
    choice = choose(wish(), [make_candidate("a.low", 1), make_candidate("b.high", 2)], "nvidia")
    assert picked(choice) == "b.high"
    assert states(choice) == {"b.high": "picked", "a.low": "outranked"}


def test_auto_breaks_equal_scores_by_name(make_candidate: Make) -> None:
    choice = choose(wish(), [make_candidate("b.x", 1), make_candidate("a.x", 1)], "nvidia")
    assert picked(choice) == "a.x"


@pytest.mark.parametrize("use", ["auto", "core.reference", ("nvidia.flash_mla", "core.reference")])
def test_the_order_of_discovery_changes_nothing(
    three: list[Candidate], use: str | tuple[str, ...]
) -> None:
    results = {repr(choose(wish(use), order, "nvidia")) for order in permutations(three)}
    assert len(results) == 1


def test_auto_takes_the_reference_on_a_cpu(three: list[Candidate]) -> None:
    assert picked(choose(wish(), [three[2]], "cpu")) == "core.reference"


@pytest.mark.parametrize(
    ("changes", "is_warned"),
    [
        ({"mendable": True}, True),
        ({"judgement": "probe-failed"}, True),
        ({}, False),
        ({"mendable": True, "devices": ("nvidia",)}, False),
        ({"mendable": True, "devices": ()}, False),
        ({"mendable": True, "slots": ("prefill",)}, False),
    ],
)
def test_auto_warns_of_the_reference_if_this_device_and_slot_could_have_better(
    make_candidate: Make, changes: dict[str, Any], is_warned: bool
) -> None:
    usual = {"judgement": "unusable", "reason": "no compiler", "devices": ("cpu",)}
    hindered = make_candidate("acme.fast", **usual | changes)
    choice = choose(wish(), [hindered, make_candidate("core.reference")], "cpu")
    assert picked(choice) == "core.reference"
    wanted = (
        "acme.fast is not usable: no compiler; core.reference runs, slower "
        "(deepinfer plugins --why acme.fast)"
    )
    assert choice.warning == (wanted if is_warned else "")


def test_auto_does_not_warn_where_something_faster_than_the_reference_runs(
    make_candidate: Make,
) -> None:
    hindered = make_candidate("a.x", judgement="unusable", mendable=True, devices=("cpu",))
    others = [make_candidate("b.x", 1), make_candidate("core.reference")]
    assert choose(wish(), [hindered, *others], "cpu").warning == ""


def test_auto_never_takes_the_reference_in_place_of_an_accelerator(
    three: list[Candidate],
) -> None:
    choice = choose(wish(), [three[0], three[2]], "nvidia")
    assert choice.picked is None
    assert states(choice)["core.reference"] == "not asked for"
    assert choice.problem is not None
    assert "needs capability 10.0, found 9.0" in choice.problem.message
    assert choice.problem.hint == "nvidia.tilelang runs on 9.0"


def test_the_reference_can_be_named_on_an_accelerator(three: list[Candidate]) -> None:
    assert picked(choose(wish("core.reference"), three, "nvidia")) == "core.reference"


def test_a_named_component_never_falls_back(three: list[Candidate]) -> None:
    choice = choose(wish("nvidia.flash_mla"), three, "nvidia")
    assert choice.picked is None
    assert choice.problem is not None
    assert "needs capability 10.0, found 9.0" in choice.problem.message
    assert choice.problem.hint == "nvidia.tilelang runs on 9.0"


def test_a_list_falls_back_in_its_order_and_says_so(three: list[Candidate]) -> None:
    use = ("nvidia.flash_mla", "core.reference", "nvidia.tilelang")
    choice = choose(wish(use), three, "nvidia")
    assert picked(choice) == "core.reference"
    assert "nvidia.flash_mla needs capability 10.0" in choice.warning
    assert states(choice)["nvidia.tilelang"] == "outranked"


def test_a_list_whose_first_name_runs_gives_no_warning(three: list[Candidate]) -> None:
    assert choose(wish(("nvidia.tilelang", "core.reference")), three, "nvidia").warning == ""


def test_a_list_without_a_usable_name_is_a_problem_that_gives_each_reason(
    make_candidate: Make,
) -> None:
    broken = [
        make_candidate("a.x", judgement="unusable", reason="too old"),
        make_candidate("b.x", judgement="probe-failed", reason="ended with -6"),
        make_candidate("c.fine", 9),
    ]
    choice = choose(wish(("b.x", "a.x")), broken, "nvidia")
    assert choice.picked is None
    assert choice.problem is not None
    assert "b.x: ended with -6; a.x: too old" in choice.problem.message
    assert states(choice)["c.fine"] == "not asked for"


def test_an_unknown_name_is_a_problem_with_the_nearest_and_all_others(
    three: list[Candidate],
) -> None:
    choice = choose(wish("nvidia.tilelan"), three, "nvidia")
    assert choice.problem is not None
    assert "nvidia.tilelan" in choice.problem.message
    assert "did you mean nvidia.tilelang?" in choice.problem.hint
    assert "core.reference" in choice.problem.hint
    assert "install" not in choice.problem.hint  # who offers others of that name is there


def test_an_unknown_name_behind_a_usable_one_is_a_problem_too(three: list[Candidate]) -> None:
    assert choose(wish(("nvidia.tilelang", "acme.typo")), three, "nvidia").problem is not None


def test_a_slot_cannot_name_a_component_that_does_not_fill_it(make_candidate: Make) -> None:
    candidates = [make_candidate("a.pre", slots=("prefill",)), make_candidate("b.both")]
    choice = choose(wish("a.pre", exact=True), candidates, "nvidia")
    assert choice.problem is not None
    assert "fills prefill only" in choice.problem.message
    assert "b.both" in choice.problem.hint


def test_a_kind_covers_the_slots_its_component_fills_and_leaves_the_others_to_auto(
    make_candidate: Make,
) -> None:
    candidates = [make_candidate("a.pre", slots=("prefill",)), make_candidate("b.both", 9)]
    assert picked(choose(wish("a.pre", "prefill"), candidates, "nvidia")) == "a.pre"
    assert picked(choose(wish("a.pre", "decode"), candidates, "nvidia")) == "b.both"


def test_a_list_for_a_kind_keeps_for_each_slot_what_fills_it(make_candidate: Make) -> None:
    candidates = [
        make_candidate("a.pre", slots=("prefill",)),
        make_candidate("b.both", 1),
        make_candidate("c.better", 9),
    ]
    choice = choose(wish(("a.pre", "b.both"), "decode"), candidates, "nvidia")
    assert picked(choice) == "b.both"
    assert choice.warning == ""


def test_slots_that_are_empty_for_one_reason_share_one_error(make_candidate: Make) -> None:
    bad = [make_candidate("a.x", judgement="unusable", reason="too old {slots}", fix="update")]
    other = [make_candidate("b.y", judgement="unusable", reason="too new")]
    choices = [
        choose(Wish(kind="attention", slot="prefill"), bad, "nvidia"),
        choose(Wish(kind="attention", slot="decode"), bad, "nvidia"),
        choose(Wish(kind="attention", slot="prefill"), other, "nvidia"),
    ]
    first, second = slot_problems(choices)
    assert first.message == (
        "nothing can fill attention.prefill, attention.decode on device 'nvidia': "
        "a.x: too old {slots}"
    )
    assert first.hint == "update"
    assert "attention.prefill on device 'nvidia': b.y: too new" in second.message


def test_an_unknown_name_for_a_kind_is_one_error(three: list[Candidate]) -> None:
    choices = [choose(wish("acme.typo", slot), three, "nvidia") for slot in ("prefill", "decode")]
    [problem] = slot_problems(choices)
    assert problem.message == "attention names acme.typo, which no loaded plugin offers"


def test_a_slot_without_any_candidate_is_a_problem() -> None:
    problem = choose(wish(), [], "cpu").problem
    assert problem is not None
    assert "nobody offers one" in problem.message
    assert problem.hint == "install a plugin for this device, or choose another device"


def test_where_a_distribution_of_ours_offers_the_kind_it_is_named() -> None:
    problem = choose(Wish(kind="grammar", slot="grammar"), [], "cpu").problem
    assert problem is not None
    assert problem.hint == "install deepinfer-grammar, which offers one"


def test_advice_to_a_component_of_the_device_comes_before_advice_to_change_the_device(
    make_candidate: Make,
) -> None:
    other = make_candidate("a.cpu", judgement="unusable", fix="set device", devices=("cpu",))
    own = make_candidate("b.gpu", judgement="unusable", fix="get a driver", devices=("acme",))
    place = Wish(kind="attention", slot="decode")
    for candidates in ([other, own], [own, other]):
        problem = choose(place, candidates, "acme").problem
        assert problem is not None
        assert problem.hint == "get a driver"


def test_the_device_is_the_one_that_answers_to_the_configured_name(make_candidate: Make) -> None:
    devices = [
        make_candidate("core.cpu", kind="device", slots=("device",), devices=("cpu",)),
        make_candidate("acme.gpu", 9, kind="device", slots=("device",), devices=("acme",)),
    ]
    place = Wish(kind="device", slot="device")
    assert picked(choose(place, devices, "cpu")) == "core.cpu"
    assert picked(choose(place, devices, "acme")) == "acme.gpu"
    problem = choose(place, devices, "nvidia").problem
    assert problem is not None
    assert problem.hint == (
        "devices here: acme, cpu; a device of another distribution must be installed, "
        "e.g. deepinfer-nvidia for nvidia (requirements/nvidia.txt)"
    )


def test_every_state_but_picked_carries_a_reason(make_candidate: Make) -> None:
    candidates = [
        make_candidate("a.best", 9),
        make_candidate("b.less", 1),
        make_candidate("core.reference"),
        make_candidate("d.bad", judgement="unusable", reason="no device"),
        make_candidate("e.old", judgement="contract-mismatch", reason="speaks 7"),
        make_candidate("f.dead", judgement="probe-failed", reason="ended with -6"),
    ]
    for use in ("auto", "b.less", ("b.less", "a.best")):
        for row in choose(wish(use), candidates, "nvidia").rows:
            assert row.state == "picked" or row.reason
