"""Do discovery, probes and choice add up to one component for each slot, or to every problem?"""

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from deepinfer_core.errors import ConfigError, NoUsableComponent
from deepinfer_core.interfaces.kinds import INTERFACES, KNOWN_SLOTS, OPTIONAL_SLOTS, SLOTS
from deepinfer_core.plugin.choice import Wish
from deepinfer_core.plugin.context import DeviceFacts
from deepinfer_core.plugin.discovery import LoadPolicy
from deepinfer_core.plugin.requirements import parse_requirement
from deepinfer_core.plugin.resolution import Request, resolve
from deepinfer_core.plugin.resolved import load

Install = Callable[..., Path]

PLUGIN = """
    from deepinfer_core.plugin import ComponentSpec, Verdict, hookimpl

    @hookimpl
    def deepinfer_components():
        yield ComponentSpec(kind="device", name="acme.gpu", slots=("device",), contract=1,
                            factory="nowhere:build", devices=("acme",), facts="acme_facts")
        yield ComponentSpec(kind="sampler", name="acme.greedy", slots=("sampler",), contract=1,
                            factory="nowhere:build", probe="acme_module:probe")

    def probe(ctx):
        return Verdict(True, 10, f"strict {ctx.needs.batch_invariant}, {ctx.device.model}")
"""


ALONE = LoadPolicy(autoload=False)
"""The core, whatever else is installed."""

WITH_ACME = LoadPolicy(autoload=False, require=(parse_requirement("acme-dist"),))
"""The core and the plugin of the fixture."""


@pytest.fixture
def acme(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = install("acme", PLUGIN)
    (folder / "acme_facts.py").write_text('print(\'{"model": "A1"}\')')
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_a_bare_core_fills_every_slot_on_a_cpu() -> None:
    resolution = resolve(Request(device="cpu", wishes=(), policy=ALONE))
    resolved = resolution.require()
    places = [(pick.kind, pick.slot) for pick in resolved.picks]
    assert places == [(kind, slot) for kind, slots in SLOTS.items() for slot in slots]
    assert dict(resolved.distributions) == {"deepinfer-core": "0.1.0"}
    assert resolution.report.device.threads >= 1


def test_factories_are_told_the_facts_that_probes_saw() -> None:
    resolution = resolve(Request(device="cpu", wishes=(), policy=ALONE))
    facts = resolution.require().context.facts
    assert facts == resolution.report.device
    assert facts.count == 1


def test_every_slot_has_an_interface() -> None:
    assert set(INTERFACES) == {
        (kind, slot) for kind, slots in KNOWN_SLOTS.items() for slot in slots
    }


@pytest.mark.parametrize("kind", sorted(OPTIONAL_SLOTS))
def test_an_optional_slot_is_reported_empty_and_not_filled(kind: str) -> None:
    resolution = resolve(Request(device="cpu", wishes=(), policy=ALONE))
    resolved = resolution.require()
    assert resolved.fills("sampler")
    assert not resolved.fills(kind)
    [choice] = [one for one in resolution.report.slots if one.wish.kind == kind]
    assert choice.picked is None
    assert choice.problem is None
    with pytest.raises(NoUsableComponent, match=f"no component was resolved for {kind}"):
        load(resolved, kind)


def test_a_component_of_a_distribution_that_is_missing_is_refused_by_the_name_to_install() -> None:
    wish = Wish(kind="drafter", slot="drafter", use="dspark.block", exact=True)
    resolution = resolve(Request(device="cpu", wishes=(wish,), policy=ALONE))
    with pytest.raises(NoUsableComponent) as caught:
        resolution.require()
    assert "drafter names dspark.block, which no loaded plugin offers" in caught.value.message
    assert "install deepinfer-dspark" in str(caught.value.hint)


@pytest.mark.usefixtures("acme")
def test_a_probed_component_outranks_the_reference_and_sees_facts_and_strictness() -> None:
    resolution = resolve(Request(device="cpu", wishes=(), policy=WITH_ACME))
    assert resolution.report.picked()["sampler"] == "acme.greedy"
    [choice] = [item for item in resolution.report.slots if item.wish.kind == "sampler"]
    assert choice.rows[0].reason.startswith("strict False")
    assert ("acme-dist", "1.0") in resolution.require().distributions


@pytest.mark.usefixtures("acme")
def test_facts_come_from_the_program_of_the_configured_device() -> None:
    report = resolve(Request(device="acme", wishes=(), policy=WITH_ACME)).report
    assert report.device == DeviceFacts(device="acme", model="A1")


@pytest.mark.usefixtures("acme")
def test_an_accelerator_without_kernels_never_runs_on_the_reference() -> None:
    resolution = resolve(Request(device="acme", wishes=(), policy=WITH_ACME))
    assert resolution.resolved is None
    assert "attention.decode" not in resolution.report.picked()
    with pytest.raises(NoUsableComponent, match=r"attention\.prefill, .*transform on"):
        resolution.require()


def test_an_unknown_device_is_the_first_problem_and_the_others_are_told() -> None:
    resolution = resolve(Request(device="nvidia", wishes=(), policy=ALONE))
    _, other = resolution.report.problems
    with pytest.raises(NoUsableComponent, match="offers device 'nvidia'; also: ") as caught:
        resolution.require()
    assert caught.value.message.endswith(f"; also: {other.message}")


@pytest.mark.parametrize(("count", "end"), [(4, "b; c; d"), (5, "b; c; d; 1 more")])
def test_of_many_problems_the_first_four_are_told(count: int, end: str) -> None:
    resolution = resolve(Request(device="nvidia", wishes=(), policy=ALONE))
    problems = tuple(ConfigError(name) for name in "abcde"[:count])
    many = replace(resolution, report=replace(resolution.report, problems=problems))
    with pytest.raises(ConfigError) as caught:
        many.require()
    assert caught.value.message == f"a; also: {end}"


@pytest.mark.usefixtures("acme")
def test_a_broken_plugin_nobody_asked_for_is_no_problem(install: Install) -> None:
    install("dead", "raise RuntimeError")
    assert resolve(Request(device="cpu", wishes=())).resolved is not None


def test_a_required_plugin_that_is_broken_is_a_problem(install: Install) -> None:
    install("dead", "raise RuntimeError('gone')")
    policy = LoadPolicy(require=(parse_requirement("dead-dist"),))
    with pytest.raises(NoUsableComponent, match="RuntimeError: gone"):
        resolve(Request(device="cpu", wishes=(), policy=policy)).require()


@pytest.mark.usefixtures("acme")
def test_strict_properties_rule_out_what_does_not_promise_them() -> None:
    resolution = resolve(
        Request(device="cpu", wishes=(), policy=WITH_ACME, strict=("batch_invariant",))
    )
    assert resolution.report.picked()["sampler"] == "core.reference"
    assert resolution.require().context.strict == ("batch_invariant",)
    assert resolution.require().context.needs.batch_invariant


@pytest.mark.usefixtures("acme")
def test_options_go_to_the_component_they_were_written_for() -> None:
    wish = Wish(kind="sampler", slot="sampler", use="acme.greedy", exact=True)
    settings = {("sampler", "sampler"): {"size": 3}}
    resolved = resolve(
        Request(device="cpu", wishes=(wish,), policy=WITH_ACME, settings=settings)
    ).require()
    assert resolved.pick("sampler").settings == {"size": 3}


def test_options_of_a_named_component_do_not_reach_the_slots_it_leaves(install: Install) -> None:
    one_slot = PLUGIN.replace("sampler", "attention").replace('("attention",)', '("prefill",)')
    install("acme", one_slot)
    wishes = tuple(
        Wish(kind="attention", slot=slot, use="acme.greedy") for slot in SLOTS["attention"]
    )
    settings = {("attention", slot): {"size": 3} for slot in SLOTS["attention"]}
    resolved = resolve(
        Request(device="cpu", wishes=wishes, policy=WITH_ACME, settings=settings)
    ).require()
    assert resolved.pick("attention", "prefill").settings == {"size": 3}
    assert resolved.pick("attention", "decode").settings == {}
    assert resolved.pick("attention", "decode").spec.name == "core.reference"


def test_a_resolution_survives_pickling_for_a_worker() -> None:
    resolved = resolve(Request(device="cpu", wishes=(), policy=ALONE)).require()
    copy = pickle.loads(pickle.dumps(resolved))
    assert copy == resolved
    copy.verify_versions()


@pytest.mark.usefixtures("acme")
def test_a_report_is_complete_as_data_and_as_tables() -> None:
    report = resolve(Request(device="cpu", wishes=(), policy=WITH_ACME)).report
    data = report.to_json()
    assert {item["name"] for item in data["plugins"]} >= {"core", "acme"}
    [sampler] = [item for item in data["slots"] if item["kind"] == "sampler"]
    assert [item["state"] for item in sampler["candidates"]] == ["picked", "outranked", "unusable"]
    text = "\n".join(" ".join(row) for row in [*report.plugin_table(), *report.slot_table()])
    assert "acme acme-dist 1.0 loaded" in text
    assert "sampler acme.greedy picked 10" in text


@pytest.mark.usefixtures("acme")
def test_a_list_that_falls_back_is_a_warning_of_the_report() -> None:
    wish = Wish(kind="sampler", slot="sampler", use=("acme.greedy", "core.reference"), exact=True)
    request = Request(device="cpu", wishes=(wish,), policy=WITH_ACME, strict=("deterministic",))
    # Without a folder for kernels there is one before it, about the other slots.
    hindered, warning = resolve(request).report.warnings
    assert hindered.startswith("core.cpu is not usable: ")
    assert "fell back to core.reference: acme.greedy does not promise deterministic" in warning
