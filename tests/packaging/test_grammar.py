"""Does the grammars' distribution install by itself, and is it asked for where it is missing?"""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.wheel

PROJECT = Path(__file__).parents[2] / "plugins" / "deepinfer_grammar"
Run = Callable[..., subprocess.CompletedProcess[str]]
USE = ("--set", "components.grammar.use=grammar.xgrammar")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, install_wheels: Callable[..., None]) -> Path:
    pytest.importorskip("hatchling", reason="needs hatchling, to build the distribution")
    folder = tmp_path_factory.mktemp("grammar")
    source = folder / "source"
    shutil.copytree(PROJECT, source, ignore=shutil.ignore_patterns("__pycache__"))
    install_wheels(folder / "site", source)
    return folder / "site"


def test_its_component_is_picked_by_name_or_says_what_to_install(
    deepinfer: Run, site: Path
) -> None:
    done = deepinfer("plugins", "--json", *USE, site=site)
    report = json.loads(done.stdout)
    [slot] = [slot for slot in report["slots"] if slot["slot"] == "grammar"]
    if slot["picked"] is not None:
        assert slot["picked"] == "grammar.xgrammar"
    else:
        assert "needs xgrammar 0.2.9" in done.stdout
        assert "pip install xgrammar==0.2.9" in done.stdout


def test_installed_and_not_asked_for_it_changes_nothing(deepinfer: Run, site: Path) -> None:
    done = deepinfer("plugins", "--json", site=site)
    picked = {slot["slot"]: slot["picked"] for slot in json.loads(done.stdout)["slots"]}
    assert picked.get("grammar") is None


def test_where_it_is_missing_the_message_names_the_distribution(deepinfer: Run) -> None:
    done = deepinfer("check", *USE)
    if "deepinfer-grammar" in deepinfer("plugins", "--json").stdout:
        pytest.skip("deepinfer-grammar is installed; needs an environment without it")
    assert done.returncode == 2
    assert "grammar names grammar.xgrammar" in done.stderr
    assert "install deepinfer-grammar, which offers it" in done.stderr


def test_where_anybody_would_do_it_is_named_all_the_same(deepinfer: Run) -> None:
    done = deepinfer("generate", "x", "--json-schema", "{}")
    if "deepinfer-grammar" in deepinfer("plugins", "--json").stdout:
        pytest.skip("deepinfer-grammar is installed; needs an environment without it")
    assert done.returncode == 2
    assert "nobody offers one" in done.stderr
    assert "install deepinfer-grammar, which offers one" in done.stderr


def test_where_it_is_missing_everything_else_works(deepinfer: Run) -> None:
    done = deepinfer("plugins", "--json")
    assert (done.returncode, done.stderr) == (0, "")
