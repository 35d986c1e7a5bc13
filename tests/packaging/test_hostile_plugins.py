"""With ten broken plugins installed at once, does every verb still work and say why?"""

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.wheel

Run = Callable[..., subprocess.CompletedProcess[str]]

# Long enough for a busy machine to answer, short enough to wait for the one that never will.
TIMEOUT = "2"

# The hang has its own tests; the others need not wait for it each time.
NO_HANG = ("--set", 'plugins.block=["hang"]')

SAMPLER = """
    import os, time
    from deepinfer_core.plugin import ComponentSpec, Verdict, hookimpl

    @hookimpl
    def deepinfer_components():
        yield ComponentSpec(kind="sampler", name="{name}", slots=("sampler",), contract=1,
                            factory="nowhere:build", probe="{probe}")
"""


def sampler(name: str, probe: str = "", body: str = "") -> str:
    text = SAMPLER.format(name=name, probe=f"{probe}:probe" if probe else "")
    return text + (f"\n    def probe(ctx):\n        {body}\n" if body else "")


HOSTILE: Mapping[str, tuple[str | None, dict[str, Any]]] = {
    "acme-import-error": ("import acme_rt", {}),
    "acme-system-exit": ("raise SystemExit('goodbye')", {}),
    "acme-abort": (sampler("abort.probe", "acme_abort", "os.abort()"), {}),
    "acme-hang": (sampler("hang.probe", "acme_hang", "time.sleep(600)"), {}),
    "acme-twin-a": (sampler("twin.greedy"), {}),
    "acme-twin-b": (sampler("twin.greedy"), {}),
    "acme-future": (sampler("future.greedy"), {"group": "deepinfer.plugins.v2"}),
    "acme-unknown-hook": (sampler("hook.greedy").replace("_components", "_componets"), {}),
    "acme-stale": (None, {}),
    "acme-heavy": ("    import xgrammar" + sampler("heavy.greedy"), {"others": {"xgrammar": ""}}),
    "acme-wrong-type": (sampler("wrong.greedy").replace("yield", "yield 7, "), {}),
}
"""Ten kinds of harm; a duplicate name takes two wheels."""

PLUGIN_FATES = {
    "import-error": ("failed", "ModuleNotFoundError: No module named 'acme_rt'"),
    "system-exit": ("failed", "SystemExit: goodbye"),
    "abort": ("loaded", ""),
    "hang": ("loaded", ""),
    "twin-a": ("loaded", "sampler twin.greedy is also offered by acme-twin-b"),
    "twin-b": ("loaded", "sampler twin.greedy is also offered by acme-twin-a"),
    "future": ("api-mismatch", "speaks v2, this core speaks v1"),
    "unknown-hook": ("failed", "unknown hook 'deepinfer_componets'"),
    "stale": ("failed", "the metadata of acme-stale names a module that does not exist"),
    "heavy": ("loaded", "its descriptor module imports xgrammar"),
    "wrong-type": ("failed", "gave an item of type tuple, expected ComponentSpec"),
}

COMPONENT_FATES = {
    "abort.probe": ("probe-failed", "acme_abort:probe ended with -6"),
    "hang.probe": ("probe-failed", f"acme_hang:probe no answer within {TIMEOUT} s"),
    "twin.greedy": ("unusable", "acme-twin-a and acme-twin-b both offer sampler twin.greedy"),
}


@pytest.fixture(scope="module")
def site(
    tmp_path_factory: pytest.TempPathFactory,
    build_wheel: Callable[..., Path],
    install_wheels: Callable[..., None],
) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    wheels = [build_wheel(name, source, **more) for name, (source, more) in HOSTILE.items()]
    install_wheels(folder, *wheels)
    return folder


@pytest.fixture(scope="module")
def run(deepinfer: Run, site: Path) -> Run:
    def with_hostile_plugins(*arguments: str) -> subprocess.CompletedProcess[str]:
        return deepinfer(
            *arguments, site=site, PLUGINS__LOAD_TIMEOUT_S=TIMEOUT, PLUGINS__PROBE_TIMEOUT_S=TIMEOUT
        )

    return with_hostile_plugins


@pytest.fixture(scope="module")
def report(run: Run) -> Any:
    done = run("plugins", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", sorted(PLUGIN_FATES))
def test_each_plugin_has_its_state_and_its_reason(report: Any, name: str) -> None:
    state, reason = PLUGIN_FATES[name]
    plugin = next(item for item in report["plugins"] if item["name"] == name)
    assert plugin["distribution"] == f"acme-{name}"
    assert plugin["state"] == state
    assert reason in plugin["reason"]
    assert reason or not plugin["reason"]


@pytest.mark.parametrize("name", sorted(COMPONENT_FATES))
def test_each_broken_component_has_its_state_and_its_reason(report: Any, name: str) -> None:
    slot = next(item for item in report["slots"] if item["slot"] == "sampler")
    found = [item for item in slot["candidates"] if item["component"] == name]
    assert found
    for item in found:
        assert (item["state"], item["reason"]) == COMPONENT_FATES[name]


CORE = ("core.cpu", "core.reference")
"""The first where a C compiler is found."""


def test_the_core_still_fills_every_slot_it_has_no_healthy_rival_for(report: Any) -> None:
    picked = {(item["kind"], item["slot"]): item["picked"] for item in report["slots"]}
    assert picked[("attention", "decode")] in CORE
    # The heavy plugin is a nuisance, not broken.
    assert picked[("sampler", "sampler")] in (*CORE, "heavy.greedy")
    assert report["problems"] == []


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (("plugins",), "import-error"),
        (("check",), "attention.decode"),
        (("check", "--json"), '"problems": []'),
        (("config",), "engine.seed"),
        (("config", "validate"), "valid:"),
        (("config", "schema"), "properties"),
        (("env",), "acme-import-error"),
        (("--version",), "deepinfer "),
        (("--help",), "5 installed plugin(s) cannot be loaded: deepinfer plugins says why"),
        (("generate", "--help"), "usage:"),
    ],
)
def test_every_verb_still_works(run: Run, arguments: tuple[str, ...], output: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert output in done.stdout


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("import-error", "import acme_rt"),
        ("system-exit", "raise SystemExit('goodbye')"),
        ("unknown-hook", "PluginValidationError"),
        ("stale", "ModuleNotFoundError"),
        ("abort.probe", "acme_abort:probe ended with -6"),
        ("twin.greedy", "uninstall one of them, or name it in plugins.block"),
    ],
)
def test_why_shows_the_cause(run: Run, name: str, output: str) -> None:
    assert output in run("plugins", "--why", name, *NO_HANG).stdout


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("components.sampler.use=abort.probe", "abort.probe: acme_abort:probe ended with -6"),
        ("components.sampler.use=twin.greedy", "both offer sampler twin.greedy"),
        ("components.sampler.use=future.greedy", "future.greedy, which no loaded plugin offers"),
        ("components.sampler.use=future.greedy", "future (api-mismatch)"),
        ('plugins.require=["acme-stale"]', "acme-stale, which is failed: ModuleNotFoundError"),
        ('plugins.require=["acme-future"]', "acme-future, which is api-mismatch: speaks v2"),
    ],
)
def test_a_broken_plugin_is_fatal_once_it_is_asked_for(
    run: Run, override: str, message: str
) -> None:
    done = run("check", "--set", override, *NO_HANG)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_blocking_one_twin_heals_the_other(run: Run) -> None:
    done = run(
        "check",
        "--set",
        'plugins.block=["twin-b", "hang"]',
        "--set",
        "components.sampler.use=twin.greedy",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "acme-twin-a" in done.stdout


def test_without_autoload_nothing_of_them_runs(deepinfer: Run, site: Path) -> None:
    done = deepinfer("plugins", "--json", site=site, PLUGINS_AUTOLOAD="0")
    states = {item["name"]: item["state"] for item in json.loads(done.stdout)["plugins"]}
    # A checkpoint distribution may be installed next to the core; nothing but the core is loaded.
    assert {name for name, state in states.items() if state == "loaded"} == {"core"}
    assert states["future"] == "api-mismatch"
