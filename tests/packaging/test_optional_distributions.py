"""Does the core work without an optional distribution, and say the name of the one to install?"""

import json
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.wheel

PLUGINS = Path(__file__).parents[2] / "plugins"
Run = Callable[..., subprocess.CompletedProcess[str]]


class Optional(NamedTuple):
    """A distribution that fills a slot which may stay empty."""

    name: str
    slot: str
    component: str

    @property
    def use(self) -> tuple[str, str]:
        return "--set", f"components.{self.slot}.use={self.component}"


OPTIONAL = (
    Optional("deepinfer-dspark", "drafter", "dspark.block"),
    Optional("deepinfer-grammar", "grammar", "grammar.xgrammar"),
    Optional("deepinfer-threefs", "kv_store", "threefs.posix"),
    Optional("deepinfer-cluster", "kv_store", "cluster.mooncake"),
)
each = pytest.mark.parametrize("optional", OPTIONAL, ids=lambda one: one.name)
PROJECTS = [PLUGINS / one.name.replace("-", "_") for one in OPTIONAL]


@pytest.fixture(scope="module")
def site(site_of: Callable[..., Path]) -> Path:
    """A folder with all of them."""
    return site_of(*PROJECTS)


@pytest.fixture(scope="module")
def once(deepinfer: Run) -> Run:
    """Runs a command in a folder once: where none was ever installed, each is missing alike."""
    return cache(deepinfer)


@pytest.fixture(scope="module", params=["never installed", "uninstalled"])
def without(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, once: Run
) -> Callable[[Optional], Path | None]:
    """Gives a folder in which one of them is missing, and the others are not if one was there."""
    sites: dict[Optional, Path | None] = {}
    report = json.loads(once("plugins", "--json", site=None).stdout)
    present = {one["distribution"] for one in report["plugins"]}

    def site(missing: Optional) -> Path | None:
        if missing.name in present:
            pytest.skip(f"{missing.name} is installed; nox -s packaging has an environment without")
        if missing not in sites:
            sites[missing] = None
            if request.param == "uninstalled":
                folder = tmp_path_factory.mktemp("uninstalled") / "site"
                shutil.copytree(request.getfixturevalue("site"), folder)
                uninstall(folder, missing.name)
                sites[missing] = folder
        return sites[missing]

    return site


def uninstall(folder: Path, name: str) -> None:
    """Remove every file that the distribution brought, as pip does."""
    [found] = [one for one in metadata.distributions(path=[str(folder)]) if one.name == name]
    for file in found.files or ():
        Path(str(file.locate())).unlink(missing_ok=True)


@each
def test_installed_and_not_asked_for_it_changes_nothing(
    deepinfer: Run, site: Path, optional: Optional
) -> None:
    done = deepinfer("plugins", "--json", site=site)
    report = json.loads(done.stdout)
    assert optional.name in {one["distribution"] for one in report["plugins"]}
    assert {slot["slot"]: slot["picked"] for slot in report["slots"]}.get(optional.slot) is None
    assert report["problems"] == []


@each
def test_where_it_is_missing_the_message_names_the_distribution(
    deepinfer: Run, without: Callable[[Optional], Path | None], optional: Optional
) -> None:
    done = deepinfer("generate", "x", *optional.use, site=without(optional))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{optional.slot} names {optional.component}" in done.stderr
    assert f"install {optional.name}, which offers it" in done.stderr


@each
def test_where_it_is_missing_the_core_works(
    once: Run, without: Callable[[Optional], Path | None], optional: Optional
) -> None:
    pytest.importorskip("deepinfer_tiny", reason="needs deepinfer-tiny, a checkpoint")
    missing = without(optional)
    done = once("plugins", "--json", site=missing)
    found = json.loads(done.stdout)
    assert (done.returncode, found["problems"]) == (0, [])
    distributions = {one["distribution"] for one in found["plugins"]}
    assert optional.name not in distributions
    if missing is not None:
        others = {one.name for one in OPTIONAL if one is not optional}
        assert others <= distributions
    prompt = ("generate", "Once upon a time", "--max-tokens", "4", "--temperature", "0")
    done = once(*prompt, site=missing)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) > 2
