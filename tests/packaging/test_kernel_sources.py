"""Does an installed core bring the sources of its kernels?"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.wheel

CORE = Path(__file__).parents[2] / "deepinfer_core"
KERNELS = Path("deepinfer_core/native/kernels")


def test_every_source_of_the_kernels_is_installed(
    tmp_path: Path, install_wheels: Callable[..., None]
) -> None:
    pytest.importorskip("hatchling", reason="needs hatchling, to build the core")
    shutil.copytree(CORE, tmp_path / "source", ignore=shutil.ignore_patterns("__pycache__"))
    install_wheels(tmp_path / "site", tmp_path / "source")
    installed = {file.name for file in (tmp_path / "site" / KERNELS).iterdir()}
    assert installed == {file.name for file in (CORE / "src" / KERNELS).iterdir()}
    assert {"common.h", "gemm.c"} <= installed
