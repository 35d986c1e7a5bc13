"""Does the drafter's distribution install by itself, and is it asked for where it is missing?"""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.wheel

PROJECT = Path(__file__).parents[2] / "plugins" / "deepinfer_dspark"
Run = Callable[..., subprocess.CompletedProcess[str]]
USE = ("--set", "components.drafter.use=dspark.block")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, install_wheels: Callable[..., None]) -> Path:
    pytest.importorskip("hatchling", reason="needs hatchling, to build the distribution")
    folder = tmp_path_factory.mktemp("dspark")
    source = folder / "source"
    shutil.copytree(PROJECT, source, ignore=shutil.ignore_patterns("__pycache__"))
    install_wheels(folder / "site", source)
    return folder / "site"


def test_its_drafter_is_picked_by_name(deepinfer: Run, site: Path) -> None:
    done = deepinfer("plugins", "--json", *USE, site=site)
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    picked = {slot["slot"]: slot["picked"] for slot in report["slots"]}
    assert picked["drafter"] == "dspark.block"


def test_installed_and_not_asked_for_it_changes_nothing(deepinfer: Run, site: Path) -> None:
    done = deepinfer("plugins", "--json", site=site)
    picked = {slot["slot"]: slot["picked"] for slot in json.loads(done.stdout)["slots"]}
    assert picked.get("drafter") is None


def test_its_verb_is_a_verb(deepinfer: Run, site: Path) -> None:
    done = deepinfer("calibrate", "nowhere.record", "--out", "table.json", site=site)
    assert done.returncode == 2
    assert "error: asked for the records in nowhere.record" in done.stderr


def test_where_it_is_missing_the_message_names_the_distribution(deepinfer: Run) -> None:
    done = deepinfer("check", *USE)
    if "dspark" in deepinfer("plugins", "--json").stdout:
        pytest.skip("deepinfer-dspark is installed; needs an environment without it")
    assert done.returncode == 2
    assert "drafter names dspark.block" in done.stderr
    assert "install deepinfer-dspark, which offers it" in done.stderr


def test_where_it_is_missing_everything_else_works(deepinfer: Run) -> None:
    done = deepinfer("plugins", "--json")
    assert (done.returncode, done.stderr) == (0, "")
