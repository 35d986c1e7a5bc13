"""Does ``kernels compile`` say what cannot be compiled, before it tries?"""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_a_device_without_kernels_is_nothing_to_do(deepinfer: Run, byte_checkpoint: Path) -> None:
    done = deepinfer("kernels", "compile", "--set", f"model.path={byte_checkpoint}")
    assert done.returncode == 2
    assert "no component for the device cpu has kernels to compile" in done.stderr
    assert "--set device=nvidia" in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--jobs", "0"], "--jobs is 0"),
        (["--cores", "8"], "--cores without --arch"),
        (["--arch", "sm_90a", "--cores", "-1"], "--cores is -1"),
        (["--set", "kernels.compile_jobs=0"], "kernels.compile_jobs"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(
    deepinfer: Run, options: list[str], words: str
) -> None:
    done = deepinfer("kernels", "compile", *options)
    assert done.returncode == 2
    assert words in done.stderr


def test_a_device_that_cannot_be_described_by_an_architecture_is_refused(
    deepinfer: Run, byte_checkpoint: Path
) -> None:
    path = f"model.path={byte_checkpoint}"
    done = deepinfer("kernels", "compile", "--arch", "sm_90a", "--set", path)
    assert done.returncode == 2
    words = "the device cpu can only be described where it is, not as sm_90a"
    assert words in done.stderr
    assert "cpu_facts" not in done.stderr


def test_an_action_is_needed(deepinfer: Run) -> None:
    assert deepinfer("kernels").returncode == 2
    assert "compile" in deepinfer("kernels", "--help").stdout
