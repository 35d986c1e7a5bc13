"""Is every verb a module of its own, and can plugins add theirs?"""

import subprocess
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from deepinfer_core.cli.verbs import VERBS

from deepinfer_core import __version__

Run = Callable[..., subprocess.CompletedProcess[str]]

PLUGIN = """\
from deepinfer_core.plugin import VerbSpec, hookimpl

@hookimpl
def deepinfer_cli_verbs():
    return [VerbSpec(name=name, summary="say hello", module=module) for name, module in VERBS]
"""
VERB = """\
def add_arguments(parser):
    parser.add_argument("name")

def run(args):
    print("hello", args.name)
    return 7
"""


@pytest.fixture
def site(tmp_path: Path) -> Callable[..., Path]:
    """A folder with plugins that add the given (verb, module) pairs."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "acme_verb.py").write_text(VERB)
    (folder / "acme_broken.py").write_text("raise SystemExit(9)")

    def put(*verbs: tuple[str, str], distribution: str = "acme-verbs") -> Path:
        module = distribution.replace("-", "_")
        info = folder / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n"
        )
        (info / "entry_points.txt").write_text(f"[deepinfer.plugins.v1]\na = {module}\n")
        (folder / f"{module}.py").write_text(f"VERBS = {verbs!r}\n{PLUGIN}")
        return folder

    return put


@pytest.mark.parametrize("name", list(VERBS))
def test_every_verb_has_a_module_with_both_functions(name: str) -> None:
    module = import_module(VERBS[name].module)
    assert callable(module.add_arguments)
    assert callable(module.run)
    assert module.__doc__


def test_help_lists_every_verb_with_its_summary(deepinfer: Run) -> None:
    done = deepinfer("--help", PLUGINS_AUTOLOAD="0")
    assert done.returncode == 0
    for name, verb in VERBS.items():
        assert f"  {name}" in done.stdout
        assert verb.summary in done.stdout


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_the_version_is_printed(deepinfer: Run, option: str) -> None:
    assert deepinfer(option).stdout == f"deepinfer {__version__}\n"


def test_a_plugins_verb_is_listed_and_runs(spawn: Run, site: Callable[..., Path]) -> None:
    path = site(("greet", "acme_verb"))
    assert "greet" in spawn("--help", path=path).stdout
    done = spawn("greet", "world", path=path)
    assert (done.returncode, done.stdout) == (7, "hello world\n")


def test_a_plugin_cannot_replace_a_verb_of_the_core(spawn: Run, site: Callable[..., Path]) -> None:
    path = site(("config", "acme_verb"))
    assert "hello" not in spawn("config", path=path).stdout
    assert "say hello" not in spawn("--help", path=path).stdout


def test_a_verb_that_two_plugins_offer_is_an_error_that_names_both(
    spawn: Run, site: Callable[..., Path]
) -> None:
    site(("greet", "acme_verb"))
    path = site(("greet", "acme_verb"), distribution="other-verbs")
    done = spawn("greet", "x", path=path)
    assert done.returncode == 2
    assert "acme-verbs and other-verbs both offer the verb 'greet'" in done.stderr


@pytest.mark.parametrize("module", ["acme_broken", "acme_absent"])
def test_a_verb_whose_module_breaks_is_one_line(
    spawn: Run, site: Callable[..., Path], module: str
) -> None:
    done = spawn("greet", path=site(("greet", module)))
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {module} of acme-verbs cannot be used as a verb")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise KeyError('boom')", "broke: KeyError: 'boom'"),
        ("raise SystemExit('bye')", "broke: SystemExit: bye"),
        ("return 'done'", "gave str, expected an exit status"),
    ],
)
@pytest.mark.parametrize("function", ["add_arguments", "run"])
def test_a_verb_that_breaks_is_the_failure_of_its_plugin(
    spawn: Run, site: Callable[..., Path], function: str, body: str, reason: str
) -> None:
    path = site(("greet", "acme_bad"))
    (path / "acme_bad.py").write_text(f"{VERB}\ndef {function}(argument):\n    {body}\n")
    done = spawn("greet", *(["x"] if function == "run" else []), path=path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: acme_bad of acme-verbs {reason}\n")


def test_an_unknown_verb_may_belong_to_a_plugin_that_cannot_be_loaded(
    spawn: Run, site: Callable[..., Path]
) -> None:
    path = site(("greet", 7))
    done = spawn("greet", path=path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "error: unknown verb 'greet'"
    assert "1 installed plugin(s) cannot be loaded: deepinfer plugins says why" in done.stderr


def test_a_verb_without_a_status_is_done(spawn: Run, site: Callable[..., Path]) -> None:
    path = site(("greet", "acme_verb"))
    (path / "acme_verb.py").write_text(VERB.replace("return 7", "return None"))
    assert spawn("greet", "x", path=path).returncode == 0


def test_without_autoload_no_foreign_verb_exists(spawn: Run, site: Callable[..., Path]) -> None:
    path = site(("greet", "acme_verb"))
    done = spawn("greet", "x", path=path, PLUGINS_AUTOLOAD="0")
    assert done.returncode == 2


def test_help_works_with_a_broken_configuration(spawn: Run, site: Callable[..., Path]) -> None:
    done = spawn("--help", path=site(("greet", "acme_verb")), XYZZY="1")
    assert done.returncode == 0
    assert "plugins" in done.stdout


def test_an_unknown_word_may_be_near_a_foreign_verb(spawn: Run, site: Callable[..., Path]) -> None:
    done = spawn("gret", path=site(("greet", "acme_verb")))
    assert "did you mean greet?" in done.stderr
