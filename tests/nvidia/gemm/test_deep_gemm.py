"""Do DeepGEMM's products arrive at the interface, and does it get only what it multiplies rightly?

The stand-in has the library's signatures and refuses what the library asserts against.
"""

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from deepinfer_core.interfaces.gemm import DenseSpec
from deepinfer_core.numeric import QuantTensor
from deepinfer_core.testing.contracts import DenseGemmContract
from deepinfer_core.testing.tiles import InterpretedKernels
from deepinfer_nvidia.gemm.deep_gemm import DeepGemmCalls, DeepGemmDense

BF16, FP32 = torch.bfloat16, torch.float32
KERNELS = InterpretedKernels()


class Library:
    """Stands in for the library: rows stand alone, sums are fp32."""

    def __init__(self) -> None:
        self.called: list[tuple[str, int]] = []

    def bf16_gemm_nt(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        d: torch.Tensor,
        c: torch.Tensor | None = None,
        compiled_dims: str = "nk",
    ) -> None:
        assert a.dtype == b.dtype == BF16
        assert d.dtype in (BF16, FP32)
        assert c is None
        assert (a.shape[0], b.shape[0], a.shape[1]) == (*d.shape, b.shape[1])
        for x in (a, b, d):
            assert x.stride(1) == 1
            # The copy engine's steps and starts.
            assert x.stride(0) * x.itemsize % 16 == 0
            assert x.data_ptr() % 16 == 0
        self.called.append(("product", len(a)))
        for row, out in zip(a, d, strict=True):
            out.copy_(b.float() @ row.float())

    def einsum(
        self,
        expr: str,
        a: torch.Tensor,
        b: torch.Tensor,
        d: torch.Tensor,
        c: torch.Tensor | None = None,
        use_cublaslt: bool = False,
    ) -> None:
        assert expr == "bhr,hdr->bhd"
        assert a.dtype == b.dtype == d.dtype == BF16
        assert not use_cublaslt
        self.called.append(("groups", len(a)))
        for row, out in zip(a, d, strict=True):
            for group in range(len(row)):
                out[group].copy_(b[group].float() @ row[group].float())


def made(library: Library, folder: Path | None = None) -> DeepGemmDense:
    calls = DeepGemmCalls(bf16_gemm_nt=library.bf16_gemm_nt, einsum=library.einsum)
    return DeepGemmDense(KERNELS, calls, folder=folder)


class TestDense(DenseGemmContract):
    """Of both: the library, and the kernels for what it does not multiply."""

    compute_dtypes = ("bfloat16", "float32")
    shapes: ClassVar[tuple[tuple[int, int], ...]] = ((32, 4), (64, 40))

    @pytest.fixture
    def component(self) -> DeepGemmDense:
        return made(Library())


def multiply(
    component: DeepGemmDense,
    *,
    x_dtype: torch.dtype = BF16,
    weight_format: str = "bfloat16",
    rows: int = 3,
    **changes: Any,
) -> None:
    spec = DenseSpec(
        **{
            "in_width": 32,
            "out_width": 8,
            "activation_format": str(x_dtype).removeprefix("torch."),
            "out_dtype": "bfloat16",
            **changes,
        }
    )
    weight_dtype = getattr(torch, weight_format)
    data = torch.ones(spec.groups * spec.out_width, spec.in_width, dtype=weight_dtype)
    weight = component.prepare(QuantTensor(data=data, scale=None, format=weight_format))
    x = torch.ones(rows, spec.groups * spec.in_width, dtype=x_dtype)
    out = torch.full((rows, len(data)), torch.nan, dtype=getattr(torch, spec.out_dtype))
    component.run(component.plan(spec, rows), x, weight, out)
    assert bool((out == spec.in_width).all())


@pytest.mark.parametrize(
    ("changes", "called"),
    [
        ({}, "product"),
        ({"out_dtype": "float32"}, "product"),
        ({"out_dtype": "float32", "out_width": 4}, "product"),
        ({"x_dtype": FP32, "activation_format": "mxfp8"}, "product"),
        ({"groups": 2}, "groups"),
    ],
)
def test_products_of_bf16_are_the_librarys(changes: dict[str, Any], called: str) -> None:
    """Rows that are rounded first have become bf16 by then."""
    library = Library()
    multiply(made(library), **changes)
    assert library.called == [(called, 3)]


@pytest.mark.parametrize(
    "changes",
    [
        {"in_width": 12},
        {"out_width": 4},
        {"x_dtype": FP32},
        {"weight_format": "float32"},
        {"groups": 2, "out_dtype": "float32"},
    ],
)
def test_other_products_are_not_the_librarys(changes: dict[str, Any]) -> None:
    """Widths that are no whole steps of 16 bytes, fp32, and groups with unrounded sums."""
    library = Library()
    multiply(made(library), **changes)
    assert library.called == []


def test_no_row_is_no_call() -> None:
    library = Library()
    multiply(made(library), rows=0)
    assert library.called == []


class CountingKernels(InterpretedKernels):
    """Says that it builds."""

    @property
    def built(self) -> int:
        return 0


def test_what_the_library_compiled_is_counted_in_its_folder(tmp_path: Path) -> None:
    """Looked for when a product runs at a number of rows for the first time."""
    library = Library()
    calls = DeepGemmCalls(bf16_gemm_nt=library.bf16_gemm_nt, einsum=library.einsum)
    component = DeepGemmDense(CountingKernels(), calls, folder=tmp_path)
    multiply(component)
    assert component.kernels_built == 0
    (tmp_path / "cache" / "kernel.one").mkdir(parents=True)
    multiply(component)
    assert component.kernels_built == 0
    multiply(component, rows=4)
    assert component.kernels_built == 1


def test_without_a_known_folder_nothing_is_counted() -> None:
    library = Library()
    calls = DeepGemmCalls(bf16_gemm_nt=library.bf16_gemm_nt, einsum=library.einsum)
    component = DeepGemmDense(CountingKernels(), calls)
    multiply(component)
    assert component.kernels_built == 0
