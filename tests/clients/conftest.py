"""Services for clients: the real one with the small checkpoint, and one whose model is scripted."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from recorded_tests import figures_in, pytest_addoption

__all__ = ["figures", "pytest_addoption"]

figures = figures_in("clients.json", "nox -s clients -- --record")
_START_S = 60.0


@contextmanager
def _served(command: list[str], port: int, log: Path) -> Iterator[str]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=_environment())
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(f"{url}/ready", process, log)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=60)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until_s = time.monotonic() + _START_S
    while time.monotonic() < until_s and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise RuntimeError(f"{url} did not answer:\n{log.read_text(errors='replace')}")


def _environment() -> dict[str, str]:
    clean = {name: text for name, text in os.environ.items() if "DEEPINFER_" not in name}
    return {**clean, "OMP_NUM_THREADS": "1"}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of ``deepinfer serve`` with the small checkpoint, called ``tiny``."""
    port = _free_port()
    command = [
        sys.executable, "-P", "-m", "deepinfer_core", "serve",
        "--set", f"server.port={port}", "--set", "server.model_names=tiny",
    ]  # fmt: skip
    with _served(command, port, tmp_path_factory.mktemp("service") / "log") as url:
        yield url


@pytest.fixture(scope="session")
def scripted_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the real server over an engine that writes what compliance runners ask for."""
    port = _free_port()
    command = [sys.executable, str(Path(__file__).with_name("scripted_server.py")), str(port)]
    with _served(command, port, tmp_path_factory.mktemp("scripted") / "log") as url:
        yield url
