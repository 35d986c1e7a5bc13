"""Which inputs do matrix products get?

Shapes of the tiny model, ragged ones, and those of the model. Rows 1, and a few around tiles of 8
and 64. Widths along which a ring of a dozen stages is used again, and that every tile divides.
Bounds: each term is exact in fp32 or rounded once, each of K additions rounds once.

Shapes: T rows, R rows sorted by expert, K input width, N output width, G groups, E experts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from deepinfer_core.interfaces.gemm import DenseSpec, GroupedSpec
from deepinfer_core.interfaces.operators.gemm import (
    GemmDenseSpec,
    GemmExpertsSpec,
    GemmSmallF32Spec,
)
from deepinfer_core.numeric import QuantTensor, number_format, quantise
from deepinfer_core.reference.gemm import ReferenceGemm
from deepinfer_core.testing.kernel_cases.case import KernelCase, Tensors, poisoned
from deepinfer_core.testing.kernel_cases.gemm_loads import DENSE_LOADS, EXPERT_LOADS
from deepinfer_core.testing.tolerance import roundoff

__all__ = ["cases", "dense_case", "experts_case"]

_TWIN = ReferenceGemm()
_FP32, _BF16 = torch.float32, torch.bfloat16


def cases() -> list[KernelCase]:
    """All cases of the family."""
    return [
        dense_case(rows=9, in_width=64, out_width=40),
        dense_case(rows=1, in_width=96, out_width=33, out_dtype="float32"),
        dense_case(rows=65, in_width=128, out_width=64, groups=2),
        dense_case(rows=260, in_width=32, out_width=24),
        dense_case(rows=70, in_width=1088, out_width=72),
        # Few channels and a long sum, which may be divided.
        dense_case(rows=9, in_width=2560, out_width=64),
        dense_case(rows=70, in_width=2560, out_width=520),
        dense_case(rows=7, in_width=5120, out_width=4608, out_dtype="float32", small=False),
        dense_case(rows=4096, in_width=5120, out_width=4608, small=False),
        dense_case(rows=130, in_width=4096, out_width=1024, groups=8, small=False),
        _small(rows=5, in_width=32, out_width=4),
        _small(rows=2, in_width=64, out_width=65, groups=2, x_dtype="bfloat16"),
        _small(rows=17, in_width=32, out_width=12),
        _small(rows=3, in_width=20480, out_width=24, x_dtype="bfloat16", small=False),
        *(
            experts_case(
                ends=ends,
                in_width=96,
                out_width=40,
                weight_format=weight_format,
                out_dtype=out_dtype,
            )
            for ends in ([3, 9, 9, 12], [0, 0, 0, 0], [0, 0, 0, 70])
            for weight_format, out_dtype in (("mxfp4", "float32"), ("bfloat16", "bfloat16"))
        ),
        experts_case(ends=[0, 9, 20], in_width=608, out_width=1280),
        # Whole tiles of eight rows, and one row more.
        experts_case(ends=[2, 2, 11], in_width=32, out_width=70, x_dtype="float32"),
        experts_case(
            ends=[0, 4],
            in_width=64,
            out_width=8,
            x_dtype="float32",
            weight_format="float32",
            spare_rows=0,
        ),
        experts_case(ends=[1, 1, 9, 40], in_width=5120, out_width=4608, small=False),
        experts_case(ends=[0, 200, 200, 264], in_width=2304, out_width=5120, small=False),
        *(
            dense_case(rows=rows, in_width=k, out_width=n, out_dtype=out_dtype, small=False)
            for rows, k, n, out_dtype in DENSE_LOADS
        ),
        *(
            experts_case(ends=ends, in_width=k, out_width=n, small=False)
            for ends, k, n in EXPERT_LOADS
        ),
    ]


def dense_case(
    *,
    rows: int,
    in_width: int,
    out_width: int,
    groups: int = 1,
    out_dtype: str = "bfloat16",
    small: bool = True,
) -> KernelCase:
    """One product of bf16 rows; a case that is not small says what it moves."""
    spec = GemmDenseSpec(in_width=in_width, out_width=out_width, groups=groups, out_dtype=out_dtype)
    arguments = _dense_arguments(
        rows, groups, in_width, out_width, "bfloat16", "bfloat16", out_dtype
    )
    numbers_in = groups * in_width * (rows + out_width)
    numbers_out = rows * groups * out_width
    return KernelCase(
        operator="gemm_dense",
        name=f"{rows}x{in_width}x{groups}x{out_width}-{out_dtype}",
        spec=spec,
        arguments=arguments,
        expect=_dense_expect(in_width, out_width, groups, out_dtype),
        bounds=_dense_bounds,
        small=small,
        rows=0 if small else rows,
        moved_bytes=0 if small else 2 * numbers_in + _dtype(out_dtype).itemsize * numbers_out,
        flops=0 if small else 2 * in_width * numbers_out,
        peer=("cuBLAS", _cublas),
    )


def _cublas(given: Tensors) -> torch.Tensor:
    """Torch's product, which writes bf16."""
    return torch.bmm(given["x_TGK"].transpose(0, 1), given["weight_GNK"].transpose(1, 2))


def _small(
    *,
    rows: int,
    in_width: int,
    out_width: int,
    groups: int = 1,
    x_dtype: str = "float32",
    small: bool = True,
) -> KernelCase:
    spec = GemmSmallF32Spec(
        in_width=in_width,
        out_width=out_width,
        groups=groups,
        x_dtype=x_dtype,
        weight_dtype="float32",
        out_dtype="float32",
    )
    arguments = _dense_arguments(rows, groups, in_width, out_width, x_dtype, "float32", "float32")
    return KernelCase(
        operator="gemm_small_f32",
        name=f"{rows}x{in_width}x{groups}x{out_width}-{x_dtype}",
        spec=spec,
        arguments=arguments,
        expect=_dense_expect(in_width, out_width, groups, "float32"),
        bounds=_dense_bounds,
        small=small,
    )


def _dense_arguments(
    rows: int,
    groups: int,
    in_width: int,
    out_width: int,
    x_dtype: str,
    weight_dtype: str,
    out_dtype: str,
) -> Callable[[torch.Generator], Tensors]:
    def arguments(generator: torch.Generator) -> Tensors:
        x = torch.randn(rows, groups, in_width, generator=generator)
        weight = torch.randn(groups, out_width, in_width, generator=generator)
        return {
            "x_TGK": x.to(_dtype(x_dtype)),
            "weight_GNK": weight.to(_dtype(weight_dtype)),
            "out_TGN": poisoned(rows, groups, out_width, dtype=_dtype(out_dtype)),
        }

    return arguments


def _dense_expect(
    in_width: int, out_width: int, groups: int, out_dtype: str
) -> Callable[[Tensors], Tensors]:
    def expect(given: Tensors) -> Tensors:
        x_TK, out = given["x_TGK"].flatten(1), given["out_TGN"]
        values = given["weight_GNK"].flatten(0, 1)
        name = str(values.dtype).removeprefix("torch.")
        weight = _TWIN.prepare(QuantTensor(data=values, scale=None, format=name))
        spec = DenseSpec(
            in_width=in_width,
            out_width=out_width,
            groups=groups,
            activation_format=str(x_TK.dtype).removeprefix("torch."),
            out_dtype=out_dtype,
        )
        _TWIN.run(_TWIN.plan(spec, len(x_TK)), x_TK, weight, out.flatten(1))
        return {"out_TGN": out}

    return expect


def _dense_bounds(given: Tensors, expected: Tensors) -> Tensors:
    x, w = given["x_TGK"].float(), given["weight_GNK"].float()
    # fp32 is soon done and off by at most K roundings, for which a thousandth is enough.
    size = 1.001 * torch.einsum("tgk,gnk->tgn", x.abs(), w.abs()).double()
    return {"out_TGN": _bound(size, x.shape[-1], expected["out_TGN"])}


def experts_case(
    *,
    ends: Sequence[int],
    in_width: int,
    out_width: int,
    x_dtype: str = "bfloat16",
    weight_format: str = "mxfp4",
    out_dtype: str = "float32",
    spare_rows: int = 3,
    small: bool = True,
) -> KernelCase:
    """One product of rows of experts, which end at ``ends``; rows of nobody follow."""
    experts, rows = len(ends), ends[-1] + spare_rows
    spec = GemmExpertsSpec(
        experts=experts,
        in_width=in_width,
        out_width=out_width,
        x_dtype=x_dtype,
        weight_format=weight_format,
        out_dtype=out_dtype,
    )

    def arguments(generator: torch.Generator) -> Tensors:
        weight = _weights(generator, (experts, out_width, in_width), weight_format, small)
        x_RK = torch.randn(rows, in_width, generator=generator).to(_dtype(x_dtype))
        # Rows of nobody: neither read nor written.
        x_RK[ends[-1] :] = torch.nan
        given = {"x_RK": x_RK, "ends_E": torch.tensor(ends, dtype=torch.int64)}
        if weight.scale is not None and x_dtype == "float32":
            # The byte of 2^-127, for a whole channel; tensor cores need not take it.
            weight.scale[:, -1] = 0
        if weight.scale is None:
            given["weight_ENK"] = weight.data
        else:
            given |= {"weight_ENC": weight.data, "scale_ENG": weight.scale}
        # A number, as rows that stay untouched are compared too.
        return given | {"out_RN": torch.full((rows, out_width), -77.0, dtype=_dtype(out_dtype))}

    def expect(given: Tensors) -> Tensors:
        out = given["out_RN"]
        plan = _TWIN.plan_experts(
            GroupedSpec(
                experts=experts,
                in_width=in_width,
                out_width=out_width,
                activation_format=x_dtype,
                out_dtype=out_dtype,
            ),
            rows,
        )
        weight = _TWIN.prepare_experts(_expert_weight(given, weight_format))
        _TWIN.run_experts(plan, given["x_RK"], weight, given["ends_E"], out)
        return {"out_RN": out}

    def bounds(given: Tensors, expected: Tensors) -> Tensors:
        weight = _expert_weight(given, weight_format).dequantise(torch.float32).abs()
        size = torch.zeros(rows, out_width, dtype=torch.float64)
        for expert, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            # As in ``_dense_bounds``.
            size[start:end] = 1.001 * given["x_RK"][start:end].float().abs() @ weight[expert].t()
        return {"out_RN": _bound(size, in_width, expected["out_RN"])}

    active = sum(end > start for start, end in zip([0, *ends[:-1]], ends, strict=True))
    weight_bytes = out_width * number_format(weight_format).row_bytes(in_width)
    row_bytes = in_width * _dtype(x_dtype).itemsize + out_width * _dtype(out_dtype).itemsize
    return KernelCase(
        operator="gemm_experts",
        name=f"{'-'.join(map(str, ends))}x{in_width}x{out_width}-{x_dtype}-{weight_format}",
        spec=spec,
        arguments=arguments,
        expect=expect,
        bounds=bounds,
        small=small,
        rows=0 if small else ends[-1],
        moved_bytes=0 if small else active * weight_bytes + ends[-1] * row_bytes,
        flops=0 if small else 2 * ends[-1] * in_width * out_width,
        peer=None if small else ("cuBLAS, one weight", _one_product(in_width, out_width)),
    )


def _one_product(in_width: int, out_width: int) -> Callable[[Tensors], object]:
    """All rows by one bf16 weight: what the matrix rate would be without any grouping."""
    weights: dict[torch.device, torch.Tensor] = {}

    def multiply(given: Tensors) -> torch.Tensor:
        x_RK = given["x_RK"]
        if x_RK.device not in weights:
            weight_NK = torch.randn(out_width, in_width, device=x_RK.device)
            weights[x_RK.device] = weight_NK.to(x_RK.dtype)
        return torch.mm(x_RK, weights[x_RK.device].t())

    return multiply


def _weights(
    generator: torch.Generator, shape: tuple[int, int, int], weight_format: str, small: bool
) -> QuantTensor:
    """Rounded numbers; at the model's sizes codes and scales are drawn, which is soon done."""
    if small:
        return quantise(torch.randn(shape, generator=generator), weight_format)
    experts, out_width, in_width = shape
    data = torch.randint(0, 256, (experts, out_width, in_width // 2), generator=generator)
    scale = torch.randint(118, 128, (experts, out_width, in_width // 32), generator=generator)
    return QuantTensor(data=data.byte(), scale=scale.byte(), format=weight_format)


def _expert_weight(given: Tensors, weight_format: str) -> QuantTensor:
    if "weight_ENK" in given:
        return QuantTensor(data=given["weight_ENK"], scale=None, format=weight_format)
    return QuantTensor(data=given["weight_ENC"], scale=given["scale_ENG"], format=weight_format)


def _bound(size: torch.Tensor, width: int, expected: torch.Tensor) -> torch.Tensor:
    """Twin and kernel each round K terms and K sums in fp32, and the result once.

    ``size`` is the sum of the terms' magnitudes. Untouched rows compare equal by their bits.
    """
    error = 2 * (width + 1) * roundoff(_FP32) * size
    return error + 2 * roundoff(expected.dtype) * (expected.double().abs().nan_to_num() + error)


def _dtype(name: str) -> torch.dtype:
    return _FP32 if name == "float32" else _BF16
