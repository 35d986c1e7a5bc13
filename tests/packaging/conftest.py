"""Wheels written by hand, installed into a folder that only child processes see."""

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
Build = Callable[..., Path]


@pytest.fixture(scope="session")
def build_wheel(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Write a wheel with one module and one entry point, without a build tool or a network."""
    house = tmp_path_factory.mktemp("wheelhouse")

    def build(
        distribution: str,
        source: str | None,
        *,
        group: str = "deepinfer.plugins.v1",
        others: Mapping[str, str] | None = None,
    ) -> Path:
        name = distribution.replace("-", "_")
        info = f"{name}-1.0.dist-info"
        entry = distribution.removeprefix("acme-")
        files = {f"{module}.py": text for module, text in (others or {}).items()}
        if source is not None:
            files[f"{name}.py"] = textwrap.dedent(source)
        files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n"
        files[f"{info}/WHEEL"] = (
            "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        files[f"{info}/entry_points.txt"] = f"[{group}]\n{entry} = {name}\n"
        record = [_record(path, text) for path, text in files.items()]
        files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,\n"])
        wheel = house / f"{name}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for path, text in files.items():
                archive.writestr(path, text)
        return wheel

    return build


def _record(path: str, text: str) -> str:
    data = text.encode()
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(data)}"


@pytest.fixture(scope="session")
def install_wheels() -> Callable[..., None]:
    """Install wheels or projects into a folder as pip does, from these files alone."""

    def install(folder: Path, *sources: Path) -> None:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
        command += ["--no-build-isolation", "--disable-pip-version-check", "--target", str(folder)]
        done = subprocess.run([*command, *map(str, sources)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    return install


@pytest.fixture(scope="session")
def site_of(
    tmp_path_factory: pytest.TempPathFactory, install_wheels: Callable[..., None]
) -> Callable[..., Path]:
    """Build projects and install them into one folder that only child processes see; once."""
    sites: dict[tuple[Path, ...], Path] = {}

    def site(*projects: Path) -> Path:
        if projects not in sites:
            pytest.importorskip("hatchling", reason="needs hatchling, to build distributions")
            folder = tmp_path_factory.mktemp(projects[0].name)
            sources = [folder / project.name for project in projects]
            for project, source in zip(projects, sources, strict=True):
                # Building writes into the source.
                shutil.copytree(project, source, ignore=shutil.ignore_patterns("__pycache__"))
            install_wheels(folder / "site", *sources)
            sites[projects] = folder / "site"
        return sites[projects]

    return site


@pytest.fixture(scope="session")
def deepinfer(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run the command line with a folder of plugins, away from the checkout."""
    away = tmp_path_factory.mktemp("away")

    def run(
        *arguments: str, site: Path | None = None, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        clean = {name: text for name, text in os.environ.items() if "DEEPINFER_" not in name}
        clean |= {f"DEEPINFER_{name}": text for name, text in environ.items()}
        if site:
            inherited = [clean["PYTHONPATH"]] if clean.get("PYTHONPATH") else []
            clean["PYTHONPATH"] = os.pathsep.join([str(site), *inherited])
        return subprocess.run(
            [sys.executable, "-P", "-m", "deepinfer_core", *arguments],
            capture_output=True,
            text=True,
            cwd=away,
            env=clean,
            timeout=120,
        )

    return run
