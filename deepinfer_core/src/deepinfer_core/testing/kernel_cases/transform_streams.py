"""Which inputs do the kernels of hyper-connections get?

Shapes: T rows, S streams, D width, K = S * D, M = S * (2 + S) mixes, P pieces of K.
"""

from __future__ import annotations

from typing import Literal

import torch

from deepinfer_core.interfaces.operators.transform import (
    MhcMixesSpec,
    MhcProductsSpec,
    MhcStreamsSpec,
)
from deepinfer_core.interfaces.transform import MixSpec
from deepinfer_core.numeric import bf16_parts
from deepinfer_core.reference import hyper_connections
from deepinfer_core.reference.arithmetic import row_product, row_sum, sigmoid
from deepinfer_core.testing.kernel_cases.case import KernelCase, Tensors, poisoned
from deepinfer_core.testing.tolerance import roundoff

__all__ = ["cases"]

_U = roundoff(torch.float32)
_MANY = 4096
_BYTES = {"bfloat16": 2, "float32": 4}
_EPS, _NORM_EPS = 1e-6, 1e-20

Dtype = Literal["bfloat16", "float32"]


def cases() -> list[KernelCase]:
    """All cases of products, mixes, collapse and expansion."""
    return [
        _products(rows=5, width=512, piece_width=128),
        # More rows than a tile, and a last piece that is shorter.
        _products(rows=66, width=640, piece_width=256),
        _products(rows=3, width=256, piece_width=128, dtype="float32"),
        _products(rows=9, width=256, piece_width=128, is_exact=True),
        _products(rows=65, width=768, piece_width=128, run=3),
        _products(rows=_MANY, width=20480, piece_width=512, run=5, small=False),
        _mixes(rows=5, pieces=3, iterations=20),
        _mixes(rows=33, pieces=1, iterations=1),
        _mixes(rows=3, pieces=6, run=3, iterations=2),
        _mixes(rows=_MANY, pieces=8, iterations=20, small=False),
        *_stream_cases(),
    ]


def _products(
    *,
    rows: int,
    width: int,
    piece_width: int,
    run: int = 1,
    dtype: Dtype = "bfloat16",
    is_exact: bool = False,
    small: bool = True,
) -> KernelCase:
    mixes = 24
    spec = MhcProductsSpec(width=width, mixes=mixes, dtype=dtype, piece_width=piece_width, run=run)
    summed_width = piece_width * run
    moved_bytes = width * (rows * _BYTES[dtype] + 2 * spec.columns)
    moved_bytes += 4 * spec.pieces * rows * (mixes + 1)

    def arguments(generator: torch.Generator) -> Tensors:
        trunk_TK = torch.randn(rows, width, generator=generator)
        if is_exact:
            # One channel a row, a power of two: every bit of its weights must come back.
            trunk_TK = torch.zeros(rows, width)
            trunk_TK[torch.arange(rows), torch.randperm(width, generator=generator)[:rows]] = 0.25
        return {
            "trunk_TK": trunk_TK.to(_torch(dtype)),
            "part_NK": bf16_parts(torch.randn(mixes, width, generator=generator), spec.columns),
            "product_PTM": poisoned(spec.pieces, rows, mixes, dtype=torch.float32),
            "square_PT": poisoned(spec.pieces, rows, dtype=torch.float32),
        }

    def expect(given: Tensors) -> Tensors:
        trunk = _pieces(given["trunk_TK"].float(), summed_width)
        fn = _pieces(_whole(given["part_NK"], mixes), summed_width)
        return {
            "product_PTM": torch.stack(
                [row_product(x, weight) for x, weight in zip(trunk, fn, strict=True)]
            ),
            "square_PT": torch.stack([row_sum(x * x) for x in trunk]),
        }

    def bounds(given: Tensors, expected: Tensors) -> Tensors:
        if is_exact:
            return {}
        # A sum of n products, in any order, is off by n roundings of the absolute products. A
        # tensor core cuts off where the twin rounds, which counts twice.
        trunk = _pieces(given["trunk_TK"].double().abs(), summed_width)
        fn = _pieces(_whole(given["part_NK"], mixes).double().abs(), summed_width)
        size = torch.stack([x @ weight.t() for x, weight in zip(trunk, fn, strict=True)])
        return {
            "product_PTM": 3 * summed_width * _U * size,
            "square_PT": 2 * summed_width * _U * expected["square_PT"].double(),
        }

    return KernelCase(
        operator="transform_mhc_products",
        name=f"{dtype}-width-{width}-pieces-{spec.pieces}-rows-{rows}" + "-exact" * is_exact,
        spec=spec,
        arguments=arguments,
        expect=expect,
        bounds=bounds,
        small=small,
        moved_bytes=0 if small else moved_bytes,
        flops=0 if small else 2 * rows * width * mixes,
    )


def _mixes(
    *, rows: int, pieces: int, iterations: int, run: int = 1, small: bool = True
) -> KernelCase:
    streams, width = 4, 512
    mixes = streams * (2 + streams)
    widths = torch.tensor([streams, streams, streams * streams])

    def arguments(generator: torch.Generator) -> Tensors:
        product_PTM = torch.randn(pieces, rows, mixes, generator=generator)
        square_PT = width * torch.rand(pieces, rows, generator=generator)
        # A row without length, and one whose powers must be relative to the largest.
        product_PTM[:, 1], square_PT[:, 1] = 0, 0
        product_PTM[:, 2, 2 * streams :: 2 * streams] += 150
        product_PTM[:, 2, 4 * streams - 1 :: 2 * streams] += 150
        return {
            "product_PTM": product_PTM,
            "square_PT": square_PT,
            "base_M": torch.randn(mixes, generator=generator),
            "scale_3": torch.tensor([0.5, 1.5, 2.0]),
            "pre_TS": poisoned(rows, streams, dtype=torch.float32),
            "post_TS": poisoned(rows, streams, dtype=torch.float32),
            "comb_TSS": poisoned(rows, streams, streams, dtype=torch.float32),
        }

    def expect(given: Tensors) -> Tensors:
        z_TM = given["product_PTM"].sum(0)
        z_TM *= torch.rsqrt(given["square_PT"].sum(0) / width + _NORM_EPS)[:, None]
        z_TM = z_TM * given["scale_3"].repeat_interleave(widths.to(z_TM.device)) + given["base_M"]
        comb_TSS = z_TM[:, 2 * streams :].reshape(-1, streams, streams)
        spec = MixSpec(sinkhorn_iterations=iterations, eps=_EPS, norm_eps=_NORM_EPS)
        return {
            "pre_TS": sigmoid(z_TM[:, :streams]) + _EPS,
            "post_TS": sigmoid(z_TM[:, streams : 2 * streams]) * 2,
            "comb_TSS": hyper_connections.sinkhorn(comb_TSS, spec),
        }

    def bounds(given: Tensors, expected: Tensors) -> Tensors:
        # A mix z is a sum of P products, a root and two products away from its parts, and the
        # exponential of z is off relatively by what z is off. A sigmoid p has the slope p (1 - p)
        # and 16 roundings of its own, those of the exponent included; each iteration
        # of Sinkhorn has 16 roundings and makes errors of the start no larger.
        size_TM = given["product_PTM"].double().abs().sum(0)
        size_TM *= torch.rsqrt(given["square_PT"].double().sum(0) / width + _NORM_EPS)[:, None]
        size_TM = (
            size_TM * given["scale_3"].repeat_interleave(widths.to(size_TM.device))
            + given["base_M"].abs()
        )
        off_T = 2 * (pieces + 8) * _U * size_TM.amax(1)
        pre_TS = expected["pre_TS"].double()
        comb_T = 2 * off_T + 2 * (16 * iterations + 20) * _U
        return {
            # A sigmoid's slope is no more than the sigmoid; the addition of eps, which must be seen
            # where the sigmoid is small, is not off by more than its sum.
            "pre_TS": (off_T[:, None] + 32 * _U) * pre_TS,
            "post_TS": (off_T / 2 + 32 * _U)[:, None].expand(-1, streams),
            "comb_TSS": comb_T[:, None, None].expand(-1, streams, streams),
        }

    return KernelCase(
        operator="transform_mhc_mixes",
        name=f"pieces-{pieces}-iterations-{iterations}-rows-{rows}",
        spec=MhcMixesSpec(
            streams=streams,
            width=width,
            pieces=pieces,
            run=run,
            sinkhorn_iterations=iterations,
            eps=_EPS,
            norm_eps=_NORM_EPS,
        ),
        arguments=arguments,
        expect=expect,
        bounds=bounds,
        small=small,
        moved_bytes=0 if small else 4 * rows * (pieces * (mixes + 1) + mixes),
    )


def _stream_cases() -> list[KernelCase]:
    found = []
    for make in (_collapse, _expand):
        found += [
            make(rows=3, streams=4, width=5120),
            make(rows=7, streams=4, width=128, dtype="float32"),
            # No whole vector, and another number of streams.
            make(rows=5, streams=3, width=25),
            make(rows=_MANY, streams=4, width=5120, small=False),
        ]
    return found


def _collapse(
    *, rows: int, streams: int, width: int, dtype: Dtype = "bfloat16", small: bool = True
) -> KernelCase:
    def arguments(generator: torch.Generator) -> Tensors:
        return {
            "trunk_TSD": torch.randn(rows, streams, width, generator=generator).to(_torch(dtype)),
            "pre_TS": torch.randn(rows, streams, generator=generator),
            "out_TD": poisoned(rows, width, dtype=_torch(dtype)),
        }

    def expect(given: Tensors) -> Tensors:
        out_TD = hyper_connections.collapse(given["trunk_TSD"], given["pre_TS"])
        return {"out_TD": out_TD.to(_torch(dtype))}

    return KernelCase(
        operator="transform_mhc_collapse",
        name=f"{dtype}-{streams}-streams-of-{width}-rows-{rows}",
        spec=MhcStreamsSpec(streams=streams, width=width, dtype=dtype),
        arguments=arguments,
        expect=expect,
        small=small,
        moved_bytes=0 if small else rows * (streams + 1) * width * _BYTES[dtype],
    )


def _expand(
    *, rows: int, streams: int, width: int, dtype: Dtype = "bfloat16", small: bool = True
) -> KernelCase:
    def arguments(generator: torch.Generator) -> Tensors:
        return {
            "trunk_TSD": torch.randn(rows, streams, width, generator=generator).to(_torch(dtype)),
            "y_TD": torch.randn(rows, width, generator=generator).to(_torch(dtype)),
            "post_TS": torch.randn(rows, streams, generator=generator),
            "comb_TSS": torch.randn(rows, streams, streams, generator=generator),
            "out_TSD": poisoned(rows, streams, width, dtype=_torch(dtype)),
        }

    def expect(given: Tensors) -> Tensors:
        parts = [given[name] for name in ("trunk_TSD", "y_TD", "post_TS", "comb_TSS")]
        return {"out_TSD": hyper_connections.expand(*parts).to(_torch(dtype))}

    return KernelCase(
        operator="transform_mhc_expand",
        name=f"{dtype}-{streams}-streams-of-{width}-rows-{rows}",
        spec=MhcStreamsSpec(streams=streams, width=width, dtype=dtype),
        arguments=arguments,
        expect=expect,
        small=small,
        moved_bytes=0 if small else rows * (2 * streams + 1) * width * _BYTES[dtype],
    )


def _whole(part_NK: torch.Tensor, mixes: int) -> torch.Tensor:
    """The weights: smallest parts first, so that no sum is rounded."""
    first, second, third = (part_NK[i * mixes : (i + 1) * mixes].float() for i in range(3))
    return first + (second + third)


def _pieces(x_NK: torch.Tensor, width: int) -> list[torch.Tensor]:
    return [x_NK[:, start : start + width] for start in range(0, x_NK.shape[1], width)]


def _torch(name: Dtype) -> torch.dtype:
    return torch.bfloat16 if name == "bfloat16" else torch.float32
