"""The command line, run here or in a process of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deepinfer_core import cli


@pytest.fixture(autouse=True)
def _interrupts_arrive() -> Iterator[None]:
    """A shell lets its background jobs ignore Ctrl-C, and their children inherit that."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.fixture
def deepinfer(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command line in this process; ``DEEPINFER_`` names are keywords."""

    def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        for name in [name for name in os.environ if name.startswith("DEEPINFER_")]:
            monkeypatch.delenv(name)
        for name, text in environ.items():
            monkeypatch.setenv(f"DEEPINFER_{name}", text)
        status = cli.main(arguments)
        captured = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, status, captured.out, captured.err)

    return run


@pytest.fixture
def spawn(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command in a process of its own, away from the checkout."""

    def run(
        *arguments: str, path: Path | None = None, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        clean = {name: text for name, text in os.environ.items() if "DEEPINFER_" not in name}
        clean |= {f"DEEPINFER_{name}": text for name, text in environ.items()}
        if path:
            inherited = [clean["PYTHONPATH"]] if clean.get("PYTHONPATH") else []
            clean["PYTHONPATH"] = os.pathsep.join([str(path), *inherited])
        return subprocess.run(
            [sys.executable, "-P", "-m", "deepinfer_core", *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=clean,
            timeout=60,
        )

    return run
