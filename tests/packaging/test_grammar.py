"""Does the grammars' distribution install by itself, and is it asked for where it is missing?"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.wheel

PROJECT = Path(__file__).parents[2] / "plugins" / "deepinfer_grammar"
Run = Callable[..., subprocess.CompletedProcess[str]]
USE = ("--set", "components.grammar.use=grammar.xgrammar")


@pytest.fixture(scope="module")
def site(site_of: Callable[..., Path]) -> Path:
    return site_of(PROJECT)


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


def test_where_anybody_would_do_it_is_named_all_the_same(deepinfer: Run) -> None:
    done = deepinfer("generate", "x", "--json-schema", "{}")
    if "deepinfer-grammar" in deepinfer("plugins", "--json").stdout:
        pytest.skip("deepinfer-grammar is installed; needs an environment without it")
    assert done.returncode == 2
    assert "nobody offers one" in done.stderr
    assert "install deepinfer-grammar, which offers one" in done.stderr
