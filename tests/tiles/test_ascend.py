"""The Ascend dialect: cube and vector cores, SIMT regions, SIMD registers."""

from collections.abc import Callable
from typing import Any

import pytest
import tilelang.ascend.language as T
import torch
from deepinfer_core.testing.tiles import (
    UnwrittenRead,
    interpret,
)
from deepinfer_core.testing.tiles.lowering import lower

Normal = Callable[..., torch.Tensor]


def product_then_relu(split: str, fault: str = "") -> Any:
    m, n, k = 32, 32, 16
    half = (m // 2, n) if split == "rows" else (m, n // 2)

    @T.prim_func
    def kernel(
        a: T.Tensor((64, 32), "bfloat16"),
        b: T.Tensor((32, 32), "bfloat16"),
        out: T.Tensor((64, 32), "float32"),
    ):
        with T.Kernel(2) as block:
            a_l1, b_l1 = T.alloc_l1((m, k), "bfloat16"), T.alloc_l1((n, k), "bfloat16")
            total = T.alloc_l0c((m, n), "float32")
            part = T.alloc_shared(half, "float32")
            for step in T.Pipelined(2, num_stages=2):
                T.copy(a[block * m, step * k], a_l1)
                T.copy(b[0, step * k], b_l1)
                T.gemm(a_l1, b_l1, total, transpose_B=True, clear_accum=(step == 0))
            if fault != "no split":
                T.dual_copy(total, part)
            with T.SimtVF(threads=64):
                for i, j in T.Parallel(*half):
                    part[i, j] = T.max(part[i, j], 0)
            T.dual_copy(part, out[block * m : block * m + m, 0:n])

    return kernel


@pytest.mark.parametrize("split", ["rows", "columns"])
def test_each_vector_core_has_its_half_of_a_product(split: str, normal: Normal) -> None:
    a, b = normal(64, 32).bfloat16(), normal(32, 32).bfloat16()
    out = torch.full((64, 32), torch.nan)
    interpret(product_then_relu(split), {"a": a, "b": b, "out": out})
    # 32 products below 20 in magnitude, added in float32.
    expected = (a.double() @ b.double().T).clamp_min(0)
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=32 * 640 * 2**-24)


def test_a_core_that_got_nothing_reads_unwritten_memory(normal: Normal) -> None:
    a, b = normal(64, 32).bfloat16(), normal(32, 32).bfloat16()
    with pytest.raises(UnwrittenRead, match="part"):
        interpret(
            product_then_relu("rows", "no split"), {"a": a, "b": b, "out": torch.zeros(64, 32)}
        )


def rms_norm(width: int) -> Any:
    rows = T.dynamic("rows")

    @T.prim_func
    def kernel(
        x_TD: T.Tensor((rows, width), "bfloat16"),
        weight_D: T.Tensor((width,), "float32"),
        out_TD: T.Tensor((rows, width), "bfloat16"),
    ):
        with T.Kernel(4) as block:
            x, out = T.alloc_shared((width,), "bfloat16"), T.alloc_shared((width,), "bfloat16")
            weight = T.alloc_shared((width,), "float32")
            T.copy(weight_D, weight)
            for row in T.Persistent([rows], 4, block):
                T.copy(x_TD[row, 0:width], x)
                with T.SimtVF(threads=128):
                    square = T.alloc_fragment((width,), "float32")
                    total = T.alloc_fragment((1,), "float32")
                    for i in T.Parallel(width):
                        square[i] = T.cast(x[i], "float32") * T.cast(x[i], "float32")
                    T.reduce_sum(square, total, dim=0)
                    for i in T.Parallel(width):
                        scaled = T.cast(x[i], "float32") * T.rsqrt(total[0] / width + 1e-6)
                        out[i] = T.cast(scaled * weight[i], "bfloat16")
                T.copy(out, out_TD[row, 0:width])

    return kernel


@pytest.mark.parametrize("rows", [0, 1, 3, 4, 5, 9])
def test_persistent_rows_are_all_normalised(rows: int, normal: Normal) -> None:
    x, weight = normal(rows, 64).bfloat16(), normal(64)
    out = torch.full((rows, 64), torch.nan).bfloat16()
    interpret(rms_norm(64), {"x_TD": x, "weight_D": weight, "out_TD": out})
    wide = x.double()
    expected = wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight
    # One rounding to bfloat16, 2^-9, and a few of float32.
    torch.testing.assert_close(out.double(), expected, rtol=2**-8, atol=0)


def test_threads_of_a_region_have_their_own_number() -> None:
    @T.prim_func
    def kernel(out: T.Tensor((2, 64), "int32")):
        with T.Kernel(1) as _:
            held = T.alloc_shared((2, 64), "int32")
            with T.SimtVF(threads=64):
                held[0, T.get_thread_binding()] = T.get_thread_binding() * 2
            with T.SimtVF(threads=32):
                thread = T.get_thread_binding()
                held[1, thread] = thread
                held[1, thread + 32] = -thread
            T.copy(held, out)

    out = torch.full((2, 64), -77, dtype=torch.int32)
    interpret(kernel, {"out": out})
    assert out[0].tolist() == [2 * n for n in range(64)]
    assert out[1].tolist() == [*range(32), *[-n for n in range(32)]]


@pytest.mark.parametrize("kernel", [lambda: rms_norm(64), lambda: product_then_relu("rows")])
def test_the_kernels_of_these_tests_are_real_ones(kernel: Callable[[], Any]) -> None:
    assert "asc_" in lower(kernel(), "ascend").source
