"""Does an engine load the very files that were compiled ahead of time, on a machine without a GPU?

One small kernel is really compiled, by the command line, into a folder that is filled by two
processes at once; nothing here needs a device.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from deepinfer_core.cli import main
from deepinfer_core.engine.kernels import rehearsal
from deepinfer_core.interfaces.operators.transform import RmsNormSpec
from deepinfer_core.interfaces.operators.wanted import WantedKernel
from deepinfer_nvidia.kernels import transform_rms_norm
from deepinfer_nvidia.kernels.launch import TileLangCompiler

SPEC = RmsNormSpec(
    width=64,
    row_stride=64,
    dtype="bfloat16",
    weight_dtype="float32",
    out_dtype="bfloat16",
    eps=1e-6,
)
TUNING = transform_rms_norm.default_tuning(SPEC)
ROWS = torch.zeros(1, SPEC.width, dtype=torch.bfloat16)
"""Not on the device that kernels are for, as they say when they are called."""
Compile = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def compiler(folder: Path) -> TileLangCompiler:
    """That of an engine on a Hopper GPU whose cache folder this is."""
    return TileLangCompiler("sm_90a", folder / "nvidia")


@pytest.fixture
def compile_(
    folder: Path,
    compiler: TileLangCompiler,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Compile:
    """Runs the command for an engine that wants kernels of these specs; status, data, errors."""
    if shutil.which("nvcc") is None:
        pytest.skip("compiles a kernel: install the CUDA toolkit")

    def compile_(*specs: RmsNormSpec) -> tuple[int, dict[str, Any], str]:
        wanted = tuple(
            WantedKernel(
                compiler=compiler, build=transform_rms_norm.build, spec=spec, tuning=TUNING
            )
            for spec in specs
        )
        monkeypatch.setattr(rehearsal, "wanted_kernels", lambda *asked: wanted)
        status = main([
            "kernels", "compile", "--arch", "sm_90a", "--jobs", "2", "--json",
            "--set", "device=nvidia", "--set", f"kernels.cache_dir={folder}",
        ])  # fmt: skip
        said = capfd.readouterr()
        return status, json.loads(said.out), said.err

    return compile_


def libraries(folder: Path) -> list[Path]:
    return sorted(folder.rglob("executable.so"))


@pytest.mark.slow
def test_what_was_compiled_ahead_of_time_is_loaded_without_a_compiler(
    compile_: Compile, compiler: TileLangCompiler, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, data, _ = compile_(SPEC, SPEC)
    assert (status, len(data["compiled"]), data["found"], data["failed"]) == (0, 2, [], [])
    assert data["compiled"][0]["operator"] == "transform_rms_norm"
    (library,) = libraries(folder)
    written_ns = library.stat().st_mtime_ns

    from tilelang.contrib import nvcc

    monkeypatch.setattr(nvcc, "compile_cuda", None)
    function, names = compiler.load(transform_rms_norm.build, SPEC, TUNING)
    assert names == ("x_TD", "weight_D", "out_TD")
    with pytest.raises(RuntimeError, match="transform_rms_norm input x_TD device_type mismatch"):
        function(ROWS, torch.zeros(SPEC.width), ROWS)
    assert (libraries(folder), library.stat().st_mtime_ns) == ([library], written_ns)

    status, data, _ = compile_(SPEC)
    assert (status, len(data["found"]), data["compiled"]) == (0, 1, [])


@pytest.mark.slow
def test_a_kernel_that_was_compiled_just_now_is_a_function_too(compiler: TileLangCompiler) -> None:
    function, _ = compiler.load(transform_rms_norm.build, SPEC, TUNING)
    with pytest.raises(RuntimeError, match="transform_rms_norm input x_TD device_type mismatch"):
        function(ROWS, torch.zeros(SPEC.width), ROWS)


@pytest.mark.slow
def test_a_torn_file_is_compiled_again(compile_: Compile, folder: Path) -> None:
    compile_(SPEC)
    (library,) = libraries(folder)
    whole = library.read_bytes()
    library.unlink()  # this process may have loaded it: what it has stays whole
    library.write_bytes(whole[: len(whole) // 2])
    status, data, _ = compile_(SPEC)
    assert (status, len(data["compiled"])) == (0, 1)
    (library,) = libraries(folder)
    assert len(library.read_bytes()) == len(whole)


@pytest.mark.slow
def test_a_kernel_that_fails_is_named_and_the_others_are_kept(
    compile_: Compile, compiler: TileLangCompiler
) -> None:
    wrong: Any = replace(SPEC, dtype="no dtype")  # type: ignore[arg-type]
    status, data, errors = compile_(SPEC, wrong)
    assert status == 1
    assert [one["operator"] for one in data["failed"]] == ["transform_rms_norm"]
    assert "no dtype" in data["failed"][0]["problem"]
    assert "error: transform_rms_norm: " in errors
    assert compiler.keeps(transform_rms_norm.build, SPEC, TUNING)
