"""Does the drafter's distribution install by itself, and is it asked for where it is missing?"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.wheel

PROJECT = Path(__file__).parents[2] / "plugins" / "deepinfer_dspark"
Run = Callable[..., subprocess.CompletedProcess[str]]
USE = ("--set", "components.drafter.use=dspark.block")


@pytest.fixture(scope="module")
def site(site_of: Callable[..., Path]) -> Path:
    return site_of(PROJECT)


def test_its_drafter_is_picked_by_name(deepinfer: Run, site: Path) -> None:
    done = deepinfer("plugins", "--json", *USE, site=site)
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    picked = {slot["slot"]: slot["picked"] for slot in report["slots"]}
    assert picked["drafter"] == "dspark.block"


def test_its_verb_is_a_verb(deepinfer: Run, site: Path) -> None:
    done = deepinfer("calibrate", "nowhere.record", "--out", "table.json", site=site)
    assert done.returncode == 2
    assert "error: asked for the records in nowhere.record" in done.stderr
