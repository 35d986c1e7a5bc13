"""A library of one small source, and compilers that fail."""

import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from deepinfer_core.native import compiling

SOURCE = """
#include <stdint.h>
__attribute__((visibility("default"))) int answer(int64_t code) { return (int)code; }
"""


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only source that there is, which compiles at once."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "answer.c").write_text(SOURCE)
    monkeypatch.setattr(compiling, "_FOLDER", folder)
    return folder / "answer.c"


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Puts a shell script in the place of every compiler."""

    def install(script: str) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        file = folder / "cc"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", str(folder))
        return file

    return install
