"""SIMD registers of Ascend's vector cores: operations, masks, conversions, loads and stores."""

from collections.abc import Callable
from typing import Any

import pytest
import tilelang.ascend.language as T
import torch
from deepinfer_core.testing.tiles import IndexOutOfRange, UnknownTileOperation, interpret
from deepinfer_core.testing.tiles.lowering import lower

Normal = Callable[..., torch.Tensor]


def simd(compute: Callable[..., Any], dtype: str = "float32", stored: str = "") -> Any:
    """One register in, one register out."""
    lanes = 256 // (4 if "32" in dtype else 2)
    count = 256 // (4 if "32" in (stored or dtype) else 2)

    @T.prim_func
    def kernel(x: T.Tensor((2, lanes), dtype), out: T.Tensor((count,), stored or dtype)):
        with T.Kernel(1) as _:
            held = T.alloc_shared((2, lanes), dtype)
            result = T.alloc_shared((count,), stored or dtype)
            T.copy(x, held)
            with T.SimdVF():
                first, second = T.simd.vld(held[0, 0]), T.simd.vld(held[1, 0])
                T.simd.vsts(result[0], compute(first, second), dist="NORM_B32")
            T.copy(result, out)

    return kernel


def run_simd(compute: Callable[..., Any], x: torch.Tensor) -> torch.Tensor:
    out = torch.full((x.shape[1],), torch.nan)
    interpret(simd(compute), {"x": x, "out": out})
    return out


PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., torch.Tensor]]] = {
    "vadd": (T.simd.vadd, lambda a, b: a + b),
    "vsub": (T.simd.vsub, lambda a, b: a - b),
    "vmul": (T.simd.vmul, lambda a, b: a * b),
    "vdiv": (T.simd.vdiv, lambda a, b: a / b),
    "vmax": (T.simd.vmax, torch.maximum),
    "vmin": (T.simd.vmin, torch.minimum),
    "vabsdif": (T.simd.vabsdif, lambda a, b: (a - b).abs()),
    "vneg": (lambda a, _b: T.simd.vneg(a), lambda a, _b: -a),
    "vabs": (lambda a, _b: T.simd.vabs(a), lambda a, _b: a.abs()),
    "vrelu": (lambda a, _b: T.simd.vrelu(a), lambda a, _b: a.clamp_min(0)),
    "vmuls": (lambda a, _b: T.simd.vmuls(a, 0.5), lambda a, _b: a * 0.5),
    "vadds": (lambda a, _b: T.simd.vadds(a, 0.5), lambda a, _b: a + 0.5),
    "vdup": (lambda _a, _b: T.simd.vdup(2.5, "float32"), lambda a, _b: torch.full_like(a, 2.5)),
    "vdupv": (lambda a, _b: T.simd.vdupv(a), lambda a, _b: a[:1].expand(64)),
    "vsel": (
        lambda a, b: T.simd.vsel(a, b, T.simd.vcmp(a, b, op="lt")),
        lambda a, b: torch.where(a < b, a, b),
    ),
    "masked": (
        lambda a, b: T.simd.vadd(a, b, T.simd.pset(32, "PAT_VL8")),
        lambda a, b: torch.where(torch.arange(64) < 8, a + b, 0.0),
    ),
    "tail": (
        lambda a, b: T.simd.vadd(a, b, T.simd.update_mask(5, 32)),
        lambda a, b: torch.where(torch.arange(64) < 5, a + b, 0.0),
    ),
    "not": (
        lambda a, b: T.simd.vsel(a, b, T.simd.pnot(T.simd.vcmps(a, 0.0, op="gt"), T.simd.pset(32))),
        lambda a, b: torch.where(a > 0, b, a),
    ),
    "interleaved": (
        lambda a, b: T.simd.pair_get(T.simd.vintlv(a, b), 1),
        lambda a, b: torch.stack([a, b], 1).flatten()[64:],
    ),
    "separated": (
        lambda a, b: T.simd.pair_get(T.simd.vdintlv(a, b), 1),
        lambda a, b: torch.cat([a, b])[1::2],
    ),
    "pairs": (
        lambda a, _b: T.simd.vcpadd(a),
        lambda a, _b: torch.cat([a[0::2] + a[1::2], torch.zeros(32)]),
    ),
    "groups": (
        lambda a, _b: T.simd.vcgmax(a),
        lambda a, _b: torch.cat([a.reshape(8, 8).amax(1), torch.zeros(56)]),
    ),
    "maximum": (
        lambda a, _b: T.simd.vdupv(T.simd.vcmax(a)),
        lambda a, _b: a.amax().expand(64),
    ),
}


@pytest.mark.parametrize("name", sorted(PAIRS))
def test_a_simd_operation_computes_every_element(name: str, normal: Normal) -> None:
    compute, expected = PAIRS[name]
    x = normal(2, 64)
    assert torch.equal(run_simd(compute, x), expected(x[0], x[1]))


def test_a_conversion_narrows_into_every_other_element(normal: Normal) -> None:
    @T.prim_func
    def kernel(x: T.Tensor((128,), "float32"), out: T.Tensor((128,), "bfloat16")):
        with T.Kernel(1) as _:
            held, result = T.alloc_shared((128,), "float32"), T.alloc_shared((128,), "bfloat16")
            T.copy(x, held)
            with T.SimdVF():
                even, odd = T.simd.vld2(held[0], dist="DINTLV_B32")
                low = T.simd.vcvt(even, "bfloat16", part=0)
                high = T.simd.vcvt(odd, "bfloat16", part=1)
                both = T.simd.vor(
                    T.reinterpret(low, "uint16x128"), T.reinterpret(high, "uint16x128")
                )
                T.simd.vsts(result[0], T.reinterpret(both, "bfloat16x128"), dist="NORM_B16")
            T.copy(result, out)

    x, out = normal(128), torch.zeros(128).bfloat16()
    interpret(kernel, {"x": x, "out": out})
    assert torch.equal(out, x.bfloat16())


def test_a_register_variable_accumulates_over_a_loop(normal: Normal) -> None:
    @T.prim_func
    def kernel(
        x: T.Tensor((4, 64), "float32"),
        out: T.Tensor((64,), "float32"),
        most: T.Tensor((4,), "float32"),
    ):
        with T.Kernel(1) as _:
            held, result = T.alloc_shared((4, 64), "float32"), T.alloc_shared((64,), "float32")
            best = T.alloc_shared((4,), "float32")
            T.copy(x, held)
            with T.SimdVF():
                total = T.simd.alloc_local((1,), "float32")
                total[0] = T.simd.vdup(1.0, "float32")
                for i in T.serial(4):
                    row = T.simd.vld(held[i, 0])
                    T.simd.vmula(total[0], row, T.simd.vdup(2.0, "float32"))
                    T.simd.vsts(best[i], T.simd.vcmax(row), dist="ONEPT_B32")
                T.simd.vsts(result[0], total[0])
            T.copy(result, out)
            T.copy(best, most)

    x = normal(4, 64).bfloat16().float()
    out, most = torch.zeros(64), torch.zeros(4)
    interpret(kernel, {"x": x, "out": out, "most": most})
    # bfloat16 numbers: each sum of four needs fewer than 24 bits unless they differ by 2^16.
    torch.testing.assert_close(out, 1 + 2 * x.sum(0), rtol=2**-22, atol=2**-20)
    assert torch.equal(most, x.amax(1))


def test_what_a_load_takes_from_beyond_the_buffer_is_poison() -> None:
    def kernel_with(count: int) -> Any:
        @T.prim_func
        def kernel(x: T.Tensor((40,), "float32"), out: T.Tensor((64,), "float32")):
            with T.Kernel(1) as _:
                held, result = T.alloc_shared((40,), "float32"), T.alloc_shared((64,), "float32")
                T.copy(x, held)
                with T.SimdVF():
                    row = T.simd.vld(held[0])
                    zero = T.simd.vdup(0.0, "float32")
                    T.simd.vsts(result[0], T.simd.vsel(row, zero, T.simd.update_mask(count, 32)))
                T.copy(result, out)

        return kernel

    x, out = torch.arange(40.0), torch.full((64,), -77.0)
    interpret(kernel_with(40), {"x": x, "out": out})
    assert torch.equal(out, torch.cat([x, torch.zeros(24)]))
    interpret(kernel_with(41), {"x": x, "out": out})
    assert out[40].isnan()


def test_a_store_beyond_the_buffer_is_reported() -> None:
    @T.prim_func
    def kernel(x: T.Tensor((64,), "float32"), out: T.Tensor((40,), "float32")):
        with T.Kernel(1) as _:
            held, result = T.alloc_shared((64,), "float32"), T.alloc_shared((40,), "float32")
            T.copy(x, held)
            with T.SimdVF():
                T.simd.vsts(result[0], T.simd.vld(held[0]))
            T.copy(result, out)

    with pytest.raises(IndexOutOfRange, match="result"):
        interpret(kernel, {"x": torch.zeros(64), "out": torch.zeros(40)})


def test_an_unknown_simd_operation_is_named(normal: Normal) -> None:
    with pytest.raises(UnknownTileOperation, match=r"tl\.simd\.vgatherb"):
        run_simd(lambda a, b: T.simd.vaddc(a, b) if a is None else _gather_blocks(), normal(2, 64))


def _gather_blocks() -> Any:
    from tilelang import tvm

    zero = tvm.tirx.const(0, "int32")
    return tvm.tirx.call_intrin("float32x64", tvm.tirx.op.Op.get("tl.simd.vgatherb"), zero, zero)


def test_the_kernel_of_these_tests_is_a_real_one() -> None:
    assert "asc_" in lower(simd(T.simd.vadd), "ascend").source
