"""Which files of a backend are kernels, of which operator, and for which architectures?"""

from pathlib import Path

import pytest
from deepinfer_core.interfaces.operators.catalogue import (
    KernelCatalogue,
    KernelLimits,
    is_tile_kernel,
    operator_of,
)


@pytest.fixture
def catalogue(tmp_path: Path) -> KernelCatalogue:
    """Two operators, one of which has another kernel; and files that are none."""
    (tmp_path / "hopper").mkdir()
    for name in ("gemm_dense", "transform_rope", "launch", "hopper/gemm_dense", "hopper/gemm_ring"):
        (tmp_path / f"{name}.py").write_text("")

    def limits(kernel: str) -> KernelLimits:
        return KernelLimits(architectures=None if is_tile_kernel(kernel) else ("sm_90a",))

    return KernelCatalogue(
        backend="fake",
        dialect="cuda",
        architectures=("sm_90a", "sm_100a"),
        folder=tmp_path,
        load=lambda kernel: lambda spec, tuning: kernel,
        tune=lambda kernel, spec, rows: None,
        open=lambda cache_dir: None,  # type: ignore[arg-type,return-value]
        measured=tmp_path / "measured.json",
        limits=limits,
    )


def test_operators_are_files_of_a_family(catalogue: KernelCatalogue) -> None:
    assert catalogue.operators == ("gemm_dense", "transform_rope")


def test_a_file_of_a_folder_is_a_kernel_if_it_is_called_as_an_operator(
    catalogue: KernelCatalogue,
) -> None:
    assert catalogue.kernels == ("gemm_dense", "hopper/gemm_dense", "transform_rope")


def test_a_kernel_names_its_operator() -> None:
    assert operator_of("hopper/gemm_dense") == operator_of("gemm_dense") == "gemm_dense"
    assert is_tile_kernel("gemm_dense")
    assert not is_tile_kernel("hopper/gemm_dense")


def test_a_kernel_for_one_architecture_is_not_asked_for_another(catalogue: KernelCatalogue) -> None:
    assert catalogue.architectures_of("gemm_dense") == ("sm_90a", "sm_100a")
    assert catalogue.architectures_of("hopper/gemm_dense") == ("sm_90a",)
