"""Does an installed core bring the sources of its kernels?"""

from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.wheel

CORE = Path(__file__).parents[2] / "deepinfer_core"
KERNELS = Path("deepinfer_core/native/kernels")


def test_every_source_of_the_kernels_is_installed(site_of: Callable[..., Path]) -> None:
    installed = {file.name for file in (site_of(CORE) / KERNELS).iterdir()}
    assert installed == {file.name for file in (CORE / "src" / KERNELS).iterdir()}
    assert {"common.h", "gemm.c"} <= installed
