"""Is each kernel compiled once, into the folder that was configured, and counted?"""

import logging
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from deepinfer_core.errors import NotSupported
from deepinfer_nvidia.kernels.launch import CompiledKernels, Wanted, launches
from deepinfer_nvidia.kernels.tuning import KernelTuning


class Compiler(ModuleType):
    """Stands for TileLang: remembers what it compiled, where to, and what was launched."""

    def __init__(self) -> None:
        super().__init__("tilelang")
        self.env = SimpleNamespace(TILELANG_CACHE_DIR="its own")
        self.compiled: list[tuple[str, str, str]] = []
        self.launched: list[tuple[str, list[int]]] = []

    def compile(
        self,
        function: Any,
        target: dict[str, str],
        pass_configs: object,
        execution_backend: str,
    ) -> Any:
        assert execution_backend == "tvm_ffi"  # the only one whose kernels are plain functions
        self.compiled.append((function.name, target["arch"], self.env.TILELANG_CACHE_DIR))

        def kernel(*tensors: torch.Tensor) -> None:
            self.launched.append((function.name, [int(one) for one in tensors]))

        module = SimpleNamespace(main=kernel)
        # The first is found in the folder, the others were compiled just now.
        executable = SimpleNamespace(jit=lambda: module) if self.compiled[1:] else module
        return SimpleNamespace(
            adapter=SimpleNamespace(get_exportable_executable=lambda: executable)
        )


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    compiler = Compiler()
    monkeypatch.setitem(sys.modules, "tilelang", compiler)
    return compiler


def build(spec: str, tuning: KernelTuning) -> Any:
    names = {1: SimpleNamespace(name="x"), 2: SimpleNamespace(name="out")}
    return SimpleNamespace(name=spec, params=[1, 2], buffer_map=names)


def call(kernels: CompiledKernels, spec: str) -> None:
    kernels.call(build, spec, KernelTuning(), out=torch.tensor(2), x=torch.tensor(1))


def test_a_kernel_is_compiled_once_and_gets_its_tensors_in_order(compiler: Compiler) -> None:
    kernels = CompiledKernels("sm_90a")
    for spec in ("a", "b", "a"):
        call(kernels, spec)
    assert [name for name, _, _ in compiler.compiled] == ["a", "b"]
    assert compiler.launched == [("a", [1, 2]), ("b", [1, 2]), ("a", [1, 2])]
    assert kernels.built == 2


def test_each_form_is_asked_for_once(compiler: Compiler) -> None:
    asked: list[tuple[str, int]] = []

    def find(name: str, width: int) -> Wanted:
        asked.append((name, width))
        return build, name, KernelTuning(threads=width)

    launch = launches(CompiledKernels("sm_90a"), find)
    for name, width in (("a", 1), ("b", 1), ("a", 1), ("a", 2), ("b", 1)):
        launch(name, width)(out=torch.tensor(2), x=torch.tensor(1))
    assert asked == [("a", 1), ("b", 1), ("a", 2)]
    assert [name for name, _, _ in compiler.compiled] == ["a", "b", "a"]
    assert [name for name, _ in compiler.launched] == ["a", "b", "a", "a", "b"]


def test_a_form_without_a_kernel_is_an_error_each_time(compiler: Compiler) -> None:
    def find(name: str) -> Wanted:
        raise NotSupported(f"asked for {name}, found nothing", hint="ask for less")

    launch = launches(CompiledKernels("sm_90a"), find)
    for _ in range(2):
        with pytest.raises(NotSupported, match="asked for a"):
            launch("a")


def test_nothing_is_built_before_it_is_called(compiler: Compiler) -> None:
    assert CompiledKernels("sm_90a").built == 0
    assert compiler.compiled == []


def test_each_engine_keeps_its_kernels_in_its_own_folder(compiler: Compiler) -> None:
    folders = [Path("/one/nvidia"), Path("/two/nvidia")]
    first, second = (CompiledKernels("sm_90a", folder) for folder in folders)
    for kernels, spec in ((first, "a"), (second, "a"), (first, "b")):
        call(kernels, spec)
    assert [place for _, _, place in compiler.compiled] == [
        "/one/nvidia", "/two/nvidia", "/one/nvidia",
    ]  # fmt: skip


def test_without_a_folder_the_compiler_keeps_its_own(compiler: Compiler) -> None:
    call(CompiledKernels("sm_100a"), "a")
    assert compiler.compiled == [("a", "sm_100a", "its own")]


def test_what_the_compiler_logs_does_not_stand_among_answers(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = logging.getLogger("tilelang")
    answers: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            answers.append(record.getMessage())

    monkeypatch.setattr(log, "handlers", [Handler()])
    monkeypatch.setattr(log, "propagate", False)
    monkeypatch.setattr(log, "level", logging.INFO)
    call(CompiledKernels("sm_90a"), "a")
    logging.getLogger("tilelang.builder").warning("for the author of a kernel")
    logging.getLogger("tilelang.builder").error("of a compilation")
    assert answers == []
    assert caplog.messages == ["of a compilation"]
