"""Does a broken plugin become a fact, and nothing more?"""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from deepinfer_core.plugin.discovery import LoadPolicy
from deepinfer_core.plugin.loading import Plugins, PluginStatus, load_plugins
from deepinfer_core.plugin.requirements import parse_requirement

Install = Callable[..., Path]

GOOD = """
    from deepinfer_core.plugin import ComponentSpec, hookimpl

    @hookimpl
    def deepinfer_components():
        yield ComponentSpec(kind="sampler", name="{vendor}.greedy", slots=("sampler",), contract=1,
                            factory="nowhere:build")
"""


def good(vendor: str = "acme") -> str:
    return GOOD.format(vendor=vendor)


def load(**policy: object) -> Plugins:
    return load_plugins(LoadPolicy(**{"load_timeout_s": 30.0, **policy}))  # type: ignore[arg-type]


def status(plugins: Plugins, name: str) -> PluginStatus:
    [found] = [item for item in plugins.statuses if item.plugin.name == name]
    return found


def offered(plugins: Plugins) -> set[str]:
    return {offer.spec.name for offer in plugins.offers}


def test_a_good_plugin_is_loaded_and_its_components_are_offered(install: Install) -> None:
    install("acme", good())
    plugins = load()
    assert status(plugins, "acme").state == "loaded"
    assert status(plugins, "acme").reason == ""
    assert {"acme.greedy", "core.reference"} <= offered(plugins)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import acme_rt", "ModuleNotFoundError: No module named 'acme_rt'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("syntax error", "SyntaxError"),
        (good().replace('"sampler", name', '["sampler"], name'), "kind = ['sampler']"),
        ("import os\nos.abort()", "ended with -6"),
        ("import os\nos._exit(0)", "ended with 0"),
        (good().replace("deepinfer_components", "deepinfer_componets"), "deepinfer_componets"),
        (good().replace("yield ComponentSpec(", "return dict("), "gave dict, expected an iterable"),
        (good().replace("yield ComponentSpec(", "yield dict("), "an item of type dict"),
        (good().replace("yield ComponentSpec(", "return 7, dict("), "an item of type int"),
        (good().replace("yield", "raise SystemExit(1)\n        yield"), "SystemExit: 1"),
        (good().replace("acme.greedy", "Greedy"), "name = 'Greedy'"),
        (good("core"), "names that begin with core."),
        (good().replace("yield", "for _ in range(2): yield"), "acme.greedy is described twice"),
    ],
)
def test_a_plugin_that_breaks_is_failed_with_its_reason_and_hides_nobody(
    install: Install, source: str, reason: str
) -> None:
    install("acme", source)
    install("other", good("other"))
    plugins = load()
    assert status(plugins, "acme").state == "failed"
    assert reason in status(plugins, "acme").reason
    assert {"other.greedy", "core.reference"} <= offered(plugins)
    assert not any(name.startswith("acme") for name in offered(plugins))


def test_a_failure_keeps_its_traceback(install: Install) -> None:
    install("acme", "def lower():\n    raise KeyError('deep')\n\nlower()")
    details = status(load(), "acme").details
    assert "in lower" in details
    assert "KeyError: 'deep'" in details


def test_a_native_abort_keeps_the_last_words_of_the_process(install: Install) -> None:
    install("acme", "import os, sys\nprint('last words', file=sys.stderr, flush=True)\nos.abort()")
    assert "last words" in status(load(), "acme").details


def test_prints_of_a_plugin_do_not_disturb_its_answer(install: Install) -> None:
    install("acme", good() + "\n    print('{}')\n    print('not json')")
    assert status(load(), "acme").state == "loaded"


def test_prints_of_a_plugin_never_reach_standard_output(
    install: Install, capfd: pytest.CaptureFixture[str]
) -> None:
    install("acme", good() + "\n    print('not json')")
    load()
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (('kind="sampler"', 'kind="sampeler"'), "a kind that this core does not know: sampeler"),
        (('("sampler",)', '("sampling",)'), "acme.greedy fills unknown slots of sampler: sampling"),
        (('("sampler",)', "()"), "acme.greedy fills no slot of sampler"),
    ],
)
def test_a_component_that_fits_no_slot_is_reported_with_its_plugin(
    install: Install, change: tuple[str, str], reason: str
) -> None:
    install("acme", good().replace(*change))
    assert reason in status(load(), "acme").reason


def test_a_hanging_import_times_out(install: Install) -> None:
    install("acme", "import time\ntime.sleep(60)")
    plugins = load(load_timeout_s=0.3)
    assert status(plugins, "acme").state == "timed-out"
    assert "no answer within 0.3 s" in status(plugins, "acme").reason
    assert "acme_module" not in sys.modules


def test_a_plugin_that_could_kill_the_process_is_never_imported_here(install: Install) -> None:
    install("acme", "import os\nos.abort()")
    load()
    assert "acme_module" not in sys.modules


def test_metadata_without_its_module_is_called_stale(install: Install) -> None:
    install("acme", None)
    reason = status(load(), "acme").reason
    assert "the metadata of acme-dist names a module that does not exist" in reason


def test_a_missing_dependency_is_not_called_stale(install: Install) -> None:
    install("acme", "import acme_rt")
    assert "metadata" not in status(load(), "acme").reason


def test_heavy_imports_are_reported_with_their_names(install: Install) -> None:
    folder = install("acme", "    import xgrammar" + good())
    # The real one would be slow; discovery only looks at the name.
    (folder / "xgrammar.py").write_text("")
    found = status(load(), "acme")
    assert found.state == "loaded"
    assert "imports xgrammar" in found.reason
    assert found.load_s > 0


def test_a_plugin_that_offers_nothing_says_so(install: Install) -> None:
    install("acme", "")
    assert status(load(), "acme").reason == "offers no component and no verb"


def test_one_name_from_two_distributions_is_reported_on_both(install: Install) -> None:
    install("one", good())
    install("two", good())
    plugins = load()
    assert "also offered by two-dist" in status(plugins, "one").reason
    assert "also offered by one-dist" in status(plugins, "two").reason


def test_two_distributions_may_use_one_plugin_name(install: Install) -> None:
    folder = install("acme", good())
    second = folder / "second-1.0.dist-info"
    second.mkdir()
    (second / "METADATA").write_text("Metadata-Version: 2.1\nName: second\nVersion: 1.0\n")
    (second / "entry_points.txt").write_text("[deepinfer.plugins.v1]\nacme = second_module\n")
    (folder / "second_module.py").write_text("")
    states = {item.plugin.distribution: item.state for item in load().statuses}
    assert states["second"] == states["acme-dist"] == "loaded"


def test_a_blocked_plugin_is_not_imported(install: Install) -> None:
    install("acme", good())
    plugins = load(block=("acme",))
    assert status(plugins, "acme").state == "blocked"
    assert "acme.greedy" not in offered(plugins)
    assert "acme_module" not in sys.modules


def test_a_plugin_for_another_api_is_not_imported(install: Install) -> None:
    install("acme", good(), group="deepinfer.plugins.v2")
    assert status(load(), "acme").state == "api-mismatch"
    assert "acme_module" not in sys.modules


@pytest.mark.parametrize(
    ("text", "source", "message"),
    [
        ("absent>=1", "", "which is not installed"),
        ("acme-dist>=2", "", "found version 1.0"),
        ("acme-dist", "raise RuntimeError('no')", "which is failed: RuntimeError: no"),
    ],
)
def test_an_unmet_requirement_is_an_error_with_what_was_found(
    install: Install, text: str, source: str, message: str
) -> None:
    install("acme", source)
    policy = LoadPolicy(require=(parse_requirement(text),))
    [error] = load_plugins(policy).missing(policy)
    assert message in error.message


def test_a_met_requirement_is_no_error(install: Install) -> None:
    install("acme", good())
    policy = LoadPolicy(require=(parse_requirement("acme-dist>=1,<2"), parse_requirement("acme")))
    assert load_plugins(policy).missing(policy) == []


def test_a_plugin_with_damaged_metadata_failed_for_that_reason(install: Install) -> None:
    folder = install("acme", good())
    [info] = folder.glob("*.dist-info")
    (info / "entry_points.txt").write_bytes(b"\xff[deepinfer.plugins.v1]\nacme = acme_module\n")
    plugins = load()
    broken = status(plugins, "acme-dist")
    assert (broken.state, broken in plugins.failed) == ("failed", True)
    assert "its entry points cannot be read: UnicodeDecodeError" in broken.reason
    assert "UnicodeDecodeError" in broken.details
    assert "acme.greedy" not in offered(plugins)
    assert status(load(block=("acme-dist",)), "acme-dist").state == "blocked"
