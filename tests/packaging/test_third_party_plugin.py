"""Can a stranger's distribution be built, installed, picked by name and held to its contract?"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.wheel

EXAMPLE = Path(__file__).parents[2] / "examples" / "third_party_plugin"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def site(site_of: Callable[..., Path]) -> Path:
    return site_of(EXAMPLE)


def test_it_is_picked_by_name_from_a_file(deepinfer: Run, site: Path) -> None:
    done = deepinfer("check", "-c", str(EXAMPLE / "deepinfer.toml"), site=site)
    assert (done.returncode, done.stderr) == (0, "")
    assert ["sampler", "acme.gumbel", "acme-sampler", "1.0.0"] in [
        line.split() for line in done.stdout.splitlines()
    ]


def test_the_same_file_is_refused_where_it_is_not_installed(deepinfer: Run) -> None:
    done = deepinfer("check", "-c", str(EXAMPLE / "deepinfer.toml"))
    assert done.returncode == 2
    assert "plugins.require names acme-sampler>=1.0, which is not installed" in done.stderr
    assert "sampler names acme.gumbel, which no loaded plugin offers" in done.stderr


def test_it_passes_the_conformance_suite(site: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error",
         str(EXAMPLE / "tests")],
        capture_output=True, text=True, cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1",
             "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout
