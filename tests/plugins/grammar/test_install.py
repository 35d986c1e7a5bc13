"""Is there an engine after each of the commands that the pages give, and in the tested version?"""

import tomllib
from pathlib import Path

import pytest
from deepinfer_core.plugin import DeviceFacts, ModelNeeds, ProbeContext
from deepinfer_grammar import probe

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads(
    (ROOT / "plugins" / "deepinfer_grammar" / "pyproject.toml").read_text(encoding="utf-8")
)["project"]


def test_the_requirements_for_a_cpu_name_an_engine_that_needs_nothing_else() -> None:
    lines = (ROOT / "requirements" / "cpu.txt").read_text(encoding="utf-8").splitlines()
    assert "-e ./plugins/deepinfer_grammar[llguidance]" in lines
    assert not [line for line in lines if "xgrammar" in line and not line.startswith("#")]


@pytest.mark.parametrize("device", ["cpu", "nvidia"])
def test_the_requirements_bring_what_a_service_with_grammars_needs(device: str) -> None:
    path = ROOT / "requirements" / f"{device}.txt"
    lines = path.read_text(encoding="utf-8").splitlines()
    assert "-e ./deepinfer_core[chat,serve]" in lines
    assert "-e ./deepinfer_recipe_bridge" in lines
    engines = [f"-e ./plugins/deepinfer_grammar[{engine}]" for engine in probe.TESTED]
    assert len(set(engines) & set(lines)) == 1


@pytest.mark.parametrize("engine", sorted(probe.TESTED))
def test_an_extra_installs_the_version_that_the_probe_wants(engine: str) -> None:
    pin = f"{engine}=={probe.TESTED[engine]}"
    assert PROJECT["optional-dependencies"][engine] == [pin]
    noxfile = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    assert pin in noxfile


def test_the_page_names_the_version_that_the_probe_wants() -> None:
    page = (ROOT / "docs" / "grammar.md").read_text(encoding="utf-8")
    assert f"pip install --no-deps xgrammar=={probe.TESTED['xgrammar']}" in page


@pytest.mark.parametrize("engine", sorted(probe.TESTED))
@pytest.mark.parametrize("found", [None, "0.0.1"])
def test_an_engine_that_is_missing_or_another_is_named_with_its_command(
    engine: str, found: str | None
) -> None:
    verdict = getattr(probe, engine)(context({engine: found} if found else {}))
    assert not verdict.usable
    assert verdict.reason == f"needs {engine} {probe.TESTED[engine]}, found {found or 'none'}"
    assert verdict.fix == f"pip install {engine}=={probe.TESTED[engine]}"


def test_the_faster_engine_is_preferred() -> None:
    both = context(dict(probe.TESTED))
    assert probe.xgrammar(both).score > probe.llguidance(both).score


def context(versions: dict[str, str]) -> ProbeContext:
    return ProbeContext(device=DeviceFacts(device="cpu"), needs=ModelNeeds(), versions=versions)
