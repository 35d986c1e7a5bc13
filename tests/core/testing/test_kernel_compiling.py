"""Is each kernel of many trials compiled once, before they run, and is what is missing named?"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from deepinfer_core.engine.kernels.compiling import CompiledKernel
from deepinfer_core.interfaces.operators.catalogue import KernelCatalogue, Kernels
from deepinfer_core.interfaces.operators.wanted import KernelCompiler, WantedKernel
from deepinfer_core.telemetry.progress import ProgressStream
from deepinfer_core.testing import kernel_compiling
from deepinfer_core.testing.kernel_cases import KernelCase
from deepinfer_core.testing.kernel_compiling import compile_trials
from deepinfer_core.testing.kernel_trials import KernelTrial


@dataclass(frozen=True)
class Folder(KernelCompiler):
    """Has the kernels of some specs."""

    there: tuple[str, ...] = ()

    def keeps(self, build: Any, spec: Any, tuning: Any) -> bool:
        return spec in self.there

    def keep(self, build: Any, spec: Any, tuning: Any) -> None:
        raise AssertionError("other processes compile")


class FolderKernels(Kernels):
    def __init__(self, compiler: KernelCompiler | None) -> None:
        self._found = compiler

    @property
    def compiler(self) -> KernelCompiler | None:
        return self._found

    def call(self, build: Any, spec: Any, tuning: Any, /, **tensors: torch.Tensor) -> None:
        raise AssertionError("nothing runs")


def build(spec: Any, tuning: Any) -> Any:
    raise AssertionError("nothing is built here")


CATALOGUE = KernelCatalogue(
    backend="fake",
    dialect="cuda",
    architectures=(),
    folder=Path("nowhere"),
    load=lambda kernel: build,
    tune=lambda kernel, spec, rows: None,
    open=lambda cache_dir: FolderKernels(None),
    measured=Path("nowhere"),
)


def trial(spec: str) -> KernelTrial:
    case = KernelCase(
        operator="gemm_dense",
        name=spec,
        spec=spec,
        arguments=lambda generator: {},
        expect=lambda given: {},
    )
    return KernelTrial(kernel="gemm_dense", case=case, tuning=None, catalogue=CATALOGUE)


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The specs that were compiled together; that of ``bad`` is refused, and so are all others
    where there is no time."""
    batches: list[list[str]] = []

    def compile_all(
        kernels: Sequence[WantedKernel], jobs: int, progress: ProgressStream, *, limit_s: float
    ) -> list[CompiledKernel]:
        batches.append([kernel.spec for kernel in kernels])
        words = "late" if limit_s < 0 else ""
        return [
            CompiledKernel(kernel=one, problem="no" if one.spec == "bad" else words, elapsed_s=0.0)
            for one in kernels
        ]

    monkeypatch.setattr(kernel_compiling, "compile_all", compile_all)
    return batches


def compiled(specs: str, folder: KernelCompiler | None, **limits: float) -> list[str]:
    return compile_trials(
        FolderKernels(folder), [trial(spec) for spec in specs.split()], jobs=1, **limits
    )


def test_a_kernel_that_trials_share_is_compiled_once(batches: list[list[str]]) -> None:
    assert compiled("a b a", Folder()) == ["", "", ""]
    assert batches == [["a", "b"]]


def test_what_the_folder_has_is_not_compiled(batches: list[list[str]]) -> None:
    assert compiled("a b", Folder(("a",))) == ["", ""]
    assert batches == [["b"]]


def test_a_refused_kernel_is_named_for_each_of_its_trials(batches: list[list[str]]) -> None:
    assert compiled("bad a bad", Folder()) == ["no", "", "no"]


def test_the_time_is_that_of_all_kernels_together(batches: list[list[str]]) -> None:
    assert compiled("a b", Folder(("b",)), limit_s=-1.0) == ["late", ""]
    assert batches == [["a"]]


def test_where_nothing_is_compiled_everything_is_ready(batches: list[list[str]]) -> None:
    assert compiled("a", None) == [""]
    assert batches == []
