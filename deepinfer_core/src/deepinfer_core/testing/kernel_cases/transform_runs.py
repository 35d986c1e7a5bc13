"""Which inputs do the kernels get that do a run of row-wise operators in one pass?

A norm or an activation is off by roundings, and what is rounded to a format behind it by a step of
that format. So each such kernel also has rows whose norm or activation is exact, and there its
numbers must have the twin's bits.

Shapes: T rows, S streams, D width, H heads, P pairs, I expert width.
"""

from __future__ import annotations

from typing import Any, Literal

import torch

from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.operators.transform import MhcStreamsSpec
from deepinfer_core.interfaces.operators.transform_runs import (
    RopeCastSpec,
    SwigluCastSpec,
)
from deepinfer_core.interfaces.transform import Rounded
from deepinfer_core.reference.transform import ReferenceTransform
from deepinfer_core.testing.kernel_cases.case import KernelCase, Tensors, poisoned

__all__ = ["cases", "format_steps"]

_TWIN = ReferenceTransform()
_PLAN = Plan(max_rows=1 << 20)
_GROUP = 32
_MANY = 4096
_ALL_PASS = 2.0**40
"""A limit that no gate of a case reaches."""

Dtype = Literal["bfloat16", "float32"]


def cases() -> list[KernelCase]:
    """All cases of runs without a norm."""
    return [*_rope_casts(), *_swiglus(), *_sums()]


def _rope_casts() -> list[KernelCase]:
    return [
        _rope_cast(rows=3, heads=5, width=128, pairs=32, is_inverse=True),
        _rope_cast(rows=2, heads=3, width=64, pairs=8, dtype="float32"),
        # Groups that reach over the border between plain and turned channels, and between heads.
        _rope_cast(rows=3, heads=8, width=20, pairs=6, number_format="mxfp4"),
        _rope_cast(rows=4, heads=2, width=64, pairs=32, number_format="mxfp4", is_inverse=True),
        _rope_cast(rows=2, heads=1, width=48, pairs=8, number_format="fp4_e4m3x16"),
        _rope_cast(rows=_MANY, heads=64, width=512, pairs=32, is_inverse=True, small=False),
    ]


def _rope_cast(
    *,
    rows: int,
    heads: int,
    width: int,
    pairs: int,
    dtype: Dtype = "bfloat16",
    number_format: str = "mxfp8",
    is_inverse: bool = False,
    small: bool = True,
) -> KernelCase:
    def arguments(generator: torch.Generator) -> Tensors:
        angle_TP = 6 * torch.rand(rows, pairs, generator=generator)
        size_TH = torch.exp2(torch.randint(-20, 21, (rows, heads, 1), generator=generator))
        x_THD = size_TH * torch.randn(rows, heads, width, generator=generator)
        x_THD[0, 0, : width - 2 * pairs] = -0.0
        return {
            "x_THD": x_THD.to(_torch(dtype)),
            "cosine_TP": angle_TP.cos(),
            "sine_TP": angle_TP.sin(),
            "rounded_TX": poisoned(rows, heads * width, dtype=torch.bfloat16),
        }

    def expect(given: Tensors) -> Tensors:
        rounded = Rounded(number_format=number_format, out_TD=given["rounded_TX"])
        angles = given["cosine_TP"], given["sine_TP"]
        _TWIN.rope_rounded(_PLAN, given["x_THD"], *angles, rounded, inverse=is_inverse)
        return {"rounded_TX": rounded.out_TD}

    return KernelCase(
        operator="transform_rope_cast",
        name=f"{number_format}-{dtype}-{heads}-heads-of-{width}-pairs-{pairs}-rows-{rows}",
        spec=RopeCastSpec(
            heads=heads,
            width=width,
            pairs=pairs,
            dtype=dtype,
            out_dtype="bfloat16",
            is_inverse=is_inverse,
            number_format=number_format,
            strides=(heads * width, width),
        ),
        arguments=arguments,
        expect=expect,
        small=small,
        moved_bytes=0 if small else rows * (4 * heads * width + 8 * pairs),
    )


def _swiglus() -> list[KernelCase]:
    return [
        _swiglu(rows=6, width=2304),
        _swiglu(rows=5, width=96, has_route=False),
        _swiglu(rows=7, width=96, is_exact=True),
        _swiglu(rows=3, width=64, dtype="bfloat16", has_route=False, is_exact=True),
        _swiglu(rows=_MANY, width=2304, small=False),
    ]


def _swiglu(
    *,
    rows: int,
    width: int,
    dtype: Dtype = "float32",
    has_route: bool = True,
    is_exact: bool = False,
    small: bool = True,
) -> KernelCase:
    limit = _ALL_PASS if is_exact else 10.0

    def arguments(generator: torch.Generator) -> Tensors:
        gate_up_R2I = 12 * torch.randn(rows, 2 * width, generator=generator)
        route_R = torch.rand(rows, generator=generator)
        if is_exact:
            # Gates of 2^7 and more are activated as they are. Three of their bits and eight of the
            # other factor fit into fp32, not into bf16.
            power_RI = torch.randint(7, 20, (rows, width), generator=generator)
            bits_RI = torch.randint(4, 8, (rows, width), generator=generator)
            gate_up_R2I[:, :width] = torch.exp2(power_RI) * bits_RI / 4
            gate_up_R2I = gate_up_R2I.to(torch.bfloat16)
            route_R = torch.exp2(torch.randint(-9, 1, (rows,), generator=generator))
        given = {
            "gate_up_R2I": gate_up_R2I.to(_torch(dtype)),
            "rounded_RI": poisoned(rows, width, dtype=torch.bfloat16),
        }
        return given | ({"route_R": route_R} if has_route else {})

    def expect(given: Tensors) -> Tensors:
        rounded = Rounded(number_format="mxfp8", out_TD=given["rounded_RI"])
        _TWIN.swiglu_rounded(_PLAN, given["gate_up_R2I"], given.get("route_R"), limit, rounded)
        return {"rounded_RI": rounded.out_TD}

    return KernelCase(
        operator="transform_swiglu_cast",
        name=f"{dtype}-width-{width}-rows-{rows}" + "-routed" * has_route + "-exact" * is_exact,
        spec=SwigluCastSpec(
            width=width,
            dtype=dtype,
            limit=limit,
            has_route=has_route,
            number_format="mxfp8",
            row_stride=2 * width,
        ),
        arguments=arguments,
        expect=expect,
        bounds=lambda _given, expected: {} if is_exact else format_steps(expected, "rounded_RI"),
        small=small,
        moved_bytes=0 if small else rows * width * 10,
    )


def _sums() -> list[KernelCase]:
    return [
        _sum(rows=3, streams=4, width=5120),
        _sum(rows=7, streams=4, width=128, dtype="float32"),
        _sum(rows=5, streams=3, width=25),
        _sum(rows=_MANY, streams=4, width=5120, small=False),
    ]


def _sum(
    *, rows: int, streams: int, width: int, dtype: Dtype = "bfloat16", small: bool = True
) -> KernelCase:
    def arguments(generator: torch.Generator) -> Tensors:
        return {
            "trunk_TSD": torch.randn(rows, streams, width, generator=generator).to(_torch(dtype)),
            "x_TD": torch.randn(rows, width, generator=generator),
            "y_TD": torch.randn(rows, width, generator=generator),
            "post_TS": torch.randn(rows, streams, generator=generator),
            "comb_TSS": torch.randn(rows, streams, streams, generator=generator),
            "out_TSD": poisoned(rows, streams, width, dtype=_torch(dtype)),
        }

    def expect(given: Tensors) -> Tensors:
        names = ("trunk_TSD", "x_TD", "y_TD", "post_TS", "comb_TSS", "out_TSD")
        _TWIN.add_expand(_PLAN, *[given[name] for name in names])
        return {"out_TSD": given["out_TSD"]}

    return KernelCase(
        operator="transform_add_expand",
        name=f"{dtype}-{streams}-streams-of-{width}-rows-{rows}",
        spec=MhcStreamsSpec(streams=streams, width=width, dtype=dtype),
        arguments=arguments,
        expect=expect,
        small=small,
        moved_bytes=0 if small else rows * width * (4 * streams + 8),
    )


def format_steps(expected: Tensors, name: str) -> dict[str, Any]:
    """A step of e4m3 for each rounded number, where what is rounded differs a little.

    Neighbours are at most an eighth of the smaller apart, and below 2^-6 of a scale 2^-9 of it. A
    scale is at most four times a 448th of the largest number, if it goes to the next power of two.
    """
    size = expected[name].double().abs()
    largest = size.reshape(len(size), -1, _GROUP).amax(-1, keepdim=True).expand(-1, -1, _GROUP)
    return {name: 0.15 * size + largest.flatten(-2) * 2.0**-15}


def _torch(name: Dtype) -> torch.dtype:
    return torch.bfloat16 if name == "bfloat16" else torch.float32
