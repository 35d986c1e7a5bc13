"""Which inputs do the kernels of single rows get: norm, rotation, rounding, activation?

Widths are those of the model, smaller ones, and ragged ones; rows 1, a few, and many.

Shapes: T rows, D width, H heads, P pairs, I expert width.
"""

from __future__ import annotations

from typing import Literal

import torch

from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.operators.transform import (
    CastSpec,
    RmsNormSpec,
    RopeSpec,
    SwigluSpec,
)
from deepinfer_core.reference.transform import ReferenceTransform
from deepinfer_core.testing.kernel_cases.case import KernelCase, Tensors, poisoned
from deepinfer_core.testing.tolerance import roundoff

__all__ = ["cases"]

_TWIN = ReferenceTransform()
_PLAN = Plan(max_rows=1 << 20)
_FORMATS = ("mxfp8", "mxfp4", "fp4_e4m3x16")
_MANY = 4096
_BYTES = {"bfloat16": 2, "float32": 4}

Dtype = Literal["bfloat16", "float32"]


def cases() -> list[KernelCase]:
    """All cases of norm, rotation, rounding and activation."""
    return [*_norms(), *_rotations(), *_casts(), *_activations()]


def _norms() -> list[KernelCase]:
    return [
        _rms_norm(rows=7, width=512),
        _rms_norm(rows=1, width=5120),
        _rms_norm(rows=3, width=1280, dtype="float32", weight_dtype="float32"),
        _rms_norm(rows=5, width=19, dtype="float32", out_dtype="float32", eps=0.5),
        _rms_norm(rows=_MANY, width=5120, small=False),
    ]


def _rms_norm(
    *,
    rows: int,
    width: int,
    dtype: Dtype = "bfloat16",
    weight_dtype: Dtype = "bfloat16",
    out_dtype: Dtype = "bfloat16",
    eps: float = 1e-20,
    small: bool = True,
) -> KernelCase:
    def arguments(generator: torch.Generator) -> Tensors:
        return {
            "x_TD": _noise(generator, rows, width, dtype=dtype, size=3),
            "weight_D": _noise(generator, width, dtype=weight_dtype),
            "out_TD": poisoned(rows, width, dtype=_torch(out_dtype)),
        }

    def expect(given: Tensors) -> Tensors:
        out = given["out_TD"]
        _TWIN.rms_norm(_PLAN, given["x_TD"], given["weight_D"], eps, out)
        return {"out_TD": out}

    def bounds(_given: Tensors, expected: Tensors) -> Tensors:
        # Twin and kernel each are off by D / 2 + 8 roundings in fp32 and one at the end.
        share = 2 * ((width / 2 + 8) * roundoff(torch.float32) + roundoff(_torch(out_dtype)))
        return {"out_TD": expected["out_TD"].double().abs() * share}

    return KernelCase(
        operator="transform_rms_norm",
        name=f"{dtype}-to-{out_dtype}-width-{width}-rows-{rows}",
        spec=RmsNormSpec(
            width=width,
            dtype=dtype,
            weight_dtype=weight_dtype,
            out_dtype=out_dtype,
            eps=eps,
            row_stride=width,
        ),
        arguments=arguments,
        expect=expect,
        bounds=bounds,
        small=small,
        moved_bytes=0 if small else rows * width * (_BYTES[dtype] + _BYTES[out_dtype]),
    )


def _rotations() -> list[KernelCase]:
    return [
        _rope(rows=3, heads=5, width=128, pairs=32),
        _rope(rows=2, heads=3, width=64, pairs=8, dtype="float32", is_inverse=True),
        # No whole vector of eight channels fits, and every channel turns.
        _rope(rows=4, heads=1, width=20, pairs=10, is_inverse=True),
        _rope(rows=_MANY, heads=64, width=512, pairs=32, small=False),
    ]


def _rope(
    *,
    rows: int,
    heads: int,
    width: int,
    pairs: int,
    dtype: Dtype = "bfloat16",
    is_inverse: bool = False,
    small: bool = True,
) -> KernelCase:
    def arguments(generator: torch.Generator) -> Tensors:
        angle_TP = 6 * torch.rand(rows, pairs, generator=generator)
        return {
            "x_THD": _noise(generator, rows, heads, width, dtype=dtype),
            "cosine_TP": angle_TP.cos(),
            "sine_TP": angle_TP.sin(),
            "out_THD": poisoned(rows, heads, width, dtype=_torch(dtype)),
        }

    def expect(given: Tensors) -> Tensors:
        out = given["out_THD"]
        x_THD, cosine_TP, sine_TP = given["x_THD"], given["cosine_TP"], given["sine_TP"]
        _TWIN.rope(_PLAN, x_THD, cosine_TP, sine_TP, out, inverse=is_inverse)
        return {"out_THD": out}

    strides = (heads * width, width)
    return KernelCase(
        operator="transform_rope",
        name=f"{dtype}-{heads}-heads-of-{width}-pairs-{pairs}-rows-{rows}",
        spec=RopeSpec(
            heads=heads,
            width=width,
            pairs=pairs,
            dtype=dtype,
            is_inverse=is_inverse,
            is_in_place=False,
            strides=strides,
            out_strides=strides,
        ),
        arguments=arguments,
        expect=expect,
        small=small,
        moved_bytes=0 if small else rows * (2 * heads * width * _BYTES[dtype] + 8 * pairs),
    )


def _casts() -> list[KernelCase]:
    found = []
    for name in _FORMATS:
        found += [
            _cast(rows=7, width=512, number_format=name),
            # Fewer groups than a block, and a last block that is not full.
            _cast(rows=3, width=96, number_format=name, dtype="float32"),
            _cast(rows=2, width=64, number_format=name, dtype="float32", out_dtype="bfloat16"),
            _cast(rows=_MANY, width=5120, number_format=name, small=False),
        ]
    return found


def _cast(
    *,
    rows: int,
    width: int,
    number_format: str,
    dtype: Dtype = "bfloat16",
    out_dtype: Dtype | None = None,
    small: bool = True,
) -> KernelCase:
    out_dtype = out_dtype or dtype

    def arguments(generator: torch.Generator) -> Tensors:
        # Groups from 2^-40 to 2^40, a quarter of the numbers between two codes, minus zeros.
        group_TG = torch.randint(-40, 41, (rows, width // 16), generator=generator)
        x_TD = torch.randn(rows, width, generator=generator)
        coarse_TD = (x_TD * 4).round() / 4
        is_coarse_TD = torch.rand(rows, width, generator=generator) < 0.25
        x_TD = torch.where(is_coarse_TD, coarse_TD, x_TD)
        x_TD *= torch.exp2(group_TG.float()).repeat_interleave(16, -1)
        x_TD[0, :32] = -0.0
        x_TD[-1, -1] = torch.inf
        return {
            "x_TD": x_TD.to(_torch(dtype)),
            "out_TD": poisoned(rows, width, dtype=_torch(out_dtype)),
        }

    def expect(given: Tensors) -> Tensors:
        _TWIN.fake_quantise(_PLAN, given["x_TD"], number_format, given["out_TD"])
        return {"out_TD": given["out_TD"]}

    return KernelCase(
        operator="transform_cast",
        name=f"{number_format}-{dtype}-to-{out_dtype}-width-{width}-rows-{rows}",
        spec=CastSpec(
            width=width,
            dtype=dtype,
            out_dtype=out_dtype,
            number_format=number_format,
            row_stride=width,
        ),
        arguments=arguments,
        expect=expect,
        small=small,
        moved_bytes=0 if small else 2 * rows * width * _BYTES[dtype],
    )


def _activations() -> list[KernelCase]:
    return [
        _swiglu(rows=5, width=2304),
        _swiglu(rows=9, width=64, has_route=False),
        _swiglu(rows=3, width=19, dtype="float32", out_dtype="float32"),
        _swiglu(rows=3, width=48, dtype="float32"),
        _swiglu(rows=_MANY, width=2304, small=False),
    ]


def _swiglu(
    *,
    rows: int,
    width: int,
    dtype: Dtype = "bfloat16",
    out_dtype: Dtype = "bfloat16",
    has_route: bool = True,
    small: bool = True,
) -> KernelCase:
    def arguments(generator: torch.Generator) -> Tensors:
        given = {
            "gate_up_R2I": _noise(generator, rows, 2 * width, dtype=dtype, size=12),
            "out_RI": poisoned(rows, width, dtype=_torch(out_dtype)),
        }
        if has_route:
            given["route_R"] = torch.rand(rows, generator=generator)
        return given

    def expect(given: Tensors) -> Tensors:
        out = given["out_RI"]
        _TWIN.swiglu(_PLAN, given["gate_up_R2I"], given.get("route_R"), 10.0, out)
        return {"out_RI": out}

    def bounds(_given: Tensors, expected: Tensors) -> Tensors:
        # Exponentials are good to 2 units in the last place, which is 4 roundings; a sum, a
        # quotient and two products follow, and one rounding at the end. Underflow below normal.
        share = 2 * (8 * roundoff(torch.float32) + roundoff(_torch(out_dtype)))
        return {"out_RI": expected["out_RI"].double().abs() * share + 2.0**-126}

    return KernelCase(
        operator="transform_swiglu",
        name=f"{dtype}-to-{out_dtype}-width-{width}-rows-{rows}" + "-routed" * has_route,
        spec=SwigluSpec(
            width=width,
            dtype=dtype,
            out_dtype=out_dtype,
            limit=10.0,
            has_route=has_route,
            row_stride=2 * width,
        ),
        arguments=arguments,
        expect=expect,
        bounds=bounds,
        small=small,
        moved_bytes=0 if small else rows * width * (2 * _BYTES[dtype] + _BYTES[out_dtype]),
    )


def _torch(name: Dtype) -> torch.dtype:
    return torch.bfloat16 if name == "bfloat16" else torch.float32


def _noise(generator: torch.Generator, *shape: int, dtype: Dtype, size: float = 1) -> torch.Tensor:
    return (size * torch.randn(*shape, generator=generator)).to(_torch(dtype))
