"""Do processes of tests wait for the one that compiles?"""

import fcntl
from pathlib import Path

import pytest
from deepinfer_core.engine.kernels.preparing import Prepared
from deepinfer_core.errors import ConfigError
from deepinfer_core.interfaces.operators.wanted import WantedKernel
from deepinfer_core.telemetry.progress import ProgressStream
from deepinfer_core.testing import rehearsed_engines
from deepinfer_core.testing.rehearsed_engines import compile_once


def is_taken(folder: str) -> bool:
    [lock] = Path(folder).iterdir()
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def test_nobody_else_compiles_into_a_folder_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[bool] = []

    def compile_missing(
        wanted: tuple[WantedKernel, ...], folder: str, jobs: None, progress: ProgressStream
    ) -> Prepared:
        taken.append(is_taken(folder))
        return Prepared(found=wanted, tried=(), jobs=0, elapsed_s=0.0)

    monkeypatch.setattr(rehearsed_engines, "compile_missing", compile_missing)
    folder = str(tmp_path / "new")
    assert compile_once([], folder).found == ()
    assert taken == [True]
    assert not is_taken(folder)


def test_a_folder_that_cannot_be_written_is_named() -> None:
    with pytest.raises(ConfigError, match=r"found"):
        compile_once([], "/proc/nope")
