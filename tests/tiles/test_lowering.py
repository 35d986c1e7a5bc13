"""Lowering and compiling without a device, and the reports that are read from them."""

from pathlib import Path
from typing import Any

import pytest
import tilelang.language as T
from deepinfer_core.testing.tiles import cubin, lowering
from deepinfer_core.testing.tiles.cubin import (
    CompilationFailed,
    CubinReport,
    KernelSpills,
    compile_cubin,
    find_nvcc,
    parse_report,
)
from deepinfer_core.testing.tiles.kept import KeptResults
from deepinfer_core.testing.tiles.lowering import Lowered, LoweringFailed, lower


def doubled(factor: float = 2.0) -> Any:
    rows = T.dynamic("rows")

    @T.prim_func
    def doubled_rows(x: T.Tensor((rows, 128), "float32"), out: T.Tensor((rows, 128), "float32")):
        with T.Kernel(rows, threads=128) as row:
            for i in T.Parallel(128):
                out[row, i] = x[row, i] * factor

    return doubled_rows


WORDS = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'main_kernel' for 'sm_90a'
ptxas info    : Function properties for main_kernel
    {stack} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used {registers} registers, used 1 barriers, 1024 bytes smem
"""


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_a_kernel_becomes_text_for_each_architecture(arch: str) -> None:
    lowered = lower(doubled(), arch)
    assert "doubled_rows" in lowered.source
    assert lowered.dynamic_shared_bytes == 0


def test_the_shared_memory_of_a_launch_is_reported() -> None:
    @T.prim_func
    def turned(x: T.Tensor((64, 64), "float32"), out: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128) as _:
            tile = T.alloc_shared((64, 64), "float32")
            T.copy(x, tile)
            for i, j in T.Parallel(64, 64):
                out[j, i] = tile[i, j]

    assert lower(turned, "sm_90a").dynamic_shared_bytes == 64 * 64 * 4


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(LoweringFailed, match="sm_1"):
        lower(doubled(), "sm_1")


def test_what_the_compiler_refuses_is_reported_in_its_words() -> None:
    @T.prim_func
    def wrong(x: T.Tensor((8, 8), "float32"), out: T.Tensor((8, 8), "float32")):
        with T.Kernel(1, threads=128) as _:
            left, right = T.alloc_shared((8, 8), "float32"), T.alloc_shared((8, 8), "float32")
            total = T.alloc_fragment((8, 8), "float32")
            T.copy(x, left)
            T.copy(x, right)
            T.clear(total)
            T.gemm(left, right, total)
            T.copy(total, out)

    with pytest.raises(LoweringFailed, match="wrong cannot be lowered for sm_90a"):
        lower(wrong, "sm_90a")


def test_an_unchanged_kernel_is_not_lowered_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, lowered = KeptResults(tmp_path), []

    def pretend(func: Any, arch: str, configs: Any) -> dict[str, Any]:
        lowered.append((arch, configs))
        return {"source": arch, "dynamic_shared_bytes": 3}

    monkeypatch.setattr(lowering, "lower_now", pretend)
    first = lower(doubled(), "sm_90a", kept=kept)
    assert lower(doubled(), "sm_90a", kept=kept) == first
    assert len(lowered) == 1
    lower(doubled(), "sm_100a", kept=kept)
    lower(doubled(3.0), "sm_90a", kept=kept)
    lower(doubled(), "sm_90a", kept=kept, pass_configs={"tl.disable_tma_lower": True})
    assert len(lowered) == 4


def test_the_words_of_ptxas_are_read() -> None:
    words = WORDS.format(stack=64, stores=12, loads=20, registers=255)
    assert parse_report(words, 4096) == CubinReport(
        kernel="main_kernel",
        arch="sm_90a",
        registers=255,
        stack_bytes=64,
        spill_store_bytes=12,
        spill_load_bytes=20,
        static_shared_bytes=1024,
        dynamic_shared_bytes=4096,
    )


@pytest.mark.parametrize(("stores", "loads"), [(0, 1), (1, 0)])
def test_a_spill_does_not_pass_the_gate_unless_it_is_stated(stores: int, loads: int) -> None:
    clean = parse_report(WORDS.format(stack=0, stores=0, loads=0, registers=9))
    clean.require_spills_within()
    report = parse_report(WORDS.format(stack=8, stores=stores, loads=loads, registers=9))
    report.require_spills_within(1)
    with pytest.raises(KernelSpills, match="spills 1 bytes a thread with 9 registers"):
        report.require_spills_within()


def test_words_about_no_kernel_are_not_a_report() -> None:
    with pytest.raises(CompilationFailed, match="0 kernels"):
        parse_report("nvcc warning: nothing to do")


def test_without_nvcc_nothing_counts_as_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cubin, "find_nvcc", lambda: None)
    with pytest.raises(CompilationFailed, match="no nvcc"):
        compile_cubin(Lowered(arch="sm_90a", source="", dynamic_shared_bytes=0))


@pytest.mark.slow
@pytest.mark.skipif(find_nvcc() is None, reason="there is no nvcc on this machine")
def test_nvcc_compiles_the_text_and_reports_registers(tmp_path: Path) -> None:
    lowered, kept = lower(doubled(), "sm_90a"), KeptResults(tmp_path)
    report = compile_cubin(lowered, kept=kept)
    assert report.arch == "sm_90a"
    assert report.registers > 0
    report.require_spills_within(0)
    assert compile_cubin(lowered, kept=kept) == report
    broken = Lowered(arch="sm_90a", source="int main( {", dynamic_shared_bytes=0)
    with pytest.raises(CompilationFailed, match="error"):
        compile_cubin(broken)
