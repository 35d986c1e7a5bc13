"""Does the NVIDIA distribution install whole, and explain itself where there is no GPU?"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.wheel

PROJECT = Path(__file__).parents[2] / "deepinfer_nvidia"
PACKAGE = "deepinfer_nvidia"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def site(site_of: Callable[..., Path]) -> Path:
    return site_of(PROJECT)


def files(folder: Path) -> set[Path]:
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {path for path in found if "__pycache__" not in path.parts}


def test_everything_is_installed_tuning_tables_too(site: Path) -> None:
    wanted = files(PROJECT / "src" / PACKAGE)
    assert files(site / PACKAGE) == wanted
    data = {"py.typed", "kernels/tuning/sm_90a.json", "kernels/measured.json"}
    assert {Path(name) for name in (*data, "facts.py", "kernels/hopper/copies.cuh")} <= wanted


@pytest.fixture(scope="module")
def reports(deepinfer: Run, site: Path) -> dict[str, Any]:
    """What ``plugins --json`` says, by configured device."""
    found = {}
    for device in ("cpu", "nvidia"):
        done = deepinfer("plugins", "--json", "--set", f"device={device}", site=site)
        assert (done.returncode, done.stderr) == (0, "")
        found[device] = json.loads(done.stdout)
    return found


def offered(report: Any) -> list[Any]:
    candidates = [one for slot in report["slots"] for one in slot["candidates"]]
    return [one for one in candidates if one["distribution"] == "deepinfer-nvidia"]


def test_the_plugin_is_loaded(reports: dict[str, Any]) -> None:
    state = {one["name"]: (one["state"], one["reason"]) for one in reports["cpu"]["plugins"]}
    assert state["nvidia"] == ("loaded", "")


def test_on_a_cpu_its_components_say_which_device_they_are_for(reports: dict[str, Any]) -> None:
    found = offered(reports["cpu"])
    assert "nvidia.cuda" in [one["component"] for one in found]
    for one in found:
        assert one["state"] == "unusable"
        assert one["reason"].endswith("the device is cpu")
        assert one["fix"] == 'set device = "nvidia"'


def test_without_a_gpu_they_say_what_is_missing_and_what_to_do(reports: dict[str, Any]) -> None:
    report = reports["nvidia"]
    if report["device"]["count"]:
        pytest.skip("there is a GPU; needs a machine without one")
    for one in offered(report):
        assert one["state"] == "unusable"
        assert "NVIDIA driver" in one["reason"]
        assert one["fix"]
    problem = next(one for one in report["problems"] if "nvidia.cuda" in one["message"])
    assert problem["hint"] == offered(report)[0]["fix"]


def test_the_cpu_keeps_its_components(reports: dict[str, Any]) -> None:
    # Optional kinds have no component until one is named.
    picked = {slot["picked"] for slot in reports["cpu"]["slots"] if slot["use"] != "none"}
    assert picked <= {"core.cpu", "core.reference", "core.local"}
    assert reports["cpu"]["problems"] == []
