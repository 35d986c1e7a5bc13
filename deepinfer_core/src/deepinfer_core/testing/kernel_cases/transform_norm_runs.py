"""Which inputs do the kernels get that norm rows and do more with them?

Rows of noise, within roundings of the norm; and rows whose norm is exact, whose bits must be right.

Shapes: T rows, S streams, D width, P pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.operators.transform_runs import (
    CollapseNormSpec,
    NormCastSpec,
    NormRopeSpec,
)
from deepinfer_core.interfaces.transform import Rounded
from deepinfer_core.reference.transform import ReferenceTransform
from deepinfer_core.testing.kernel_cases.case import KernelCase, Tensors, poisoned
from deepinfer_core.testing.kernel_cases.transform_runs import format_steps
from deepinfer_core.testing.tolerance import roundoff

__all__ = ["EPS", "Dtype", "NormRows", "cases", "norm_share", "torch_dtype"]

_TWIN = ReferenceTransform()
_PLAN = Plan(max_rows=1 << 20)
EPS = 1e-20
_MANY = 4096

Dtype = Literal["bfloat16", "float32"]


def cases() -> list[KernelCase]:
    """All cases of runs with a norm."""
    return [*_norm_casts(), *_collapses(), *_norm_ropes()]


def _norm_casts() -> list[KernelCase]:
    return [
        _norm_cast(rows=3, width=1280),
        _norm_cast(rows=5, width=512, is_exact=True),
        # Fewer vectors than lanes, and more than a turn of all threads.
        _norm_cast(rows=4, width=64, dtype="float32", is_exact=True),
        _norm_cast(rows=2, width=1184, weight_dtype="bfloat16"),
        _norm_cast(rows=_MANY, width=1280, small=False),
    ]


def _norm_cast(
    *,
    rows: int,
    width: int,
    dtype: Dtype = "bfloat16",
    weight_dtype: Dtype = "float32",
    is_exact: bool = False,
    small: bool = True,
) -> KernelCase:
    def arguments(generator: torch.Generator) -> Tensors:
        row = NormRows(generator, width, is_exact)
        return {
            "x_TD": row.rows(rows).to(torch_dtype(dtype)),
            "weight_D": row.weight().to(torch_dtype(weight_dtype)),
            "rounded_TD": poisoned(rows, width, dtype=torch.bfloat16),
        }

    def expect(given: Tensors) -> Tensors:
        rounded = Rounded(number_format="mxfp8", out_TD=given["rounded_TD"])
        _TWIN.rms_norm_rounded(_PLAN, given["x_TD"], given["weight_D"], EPS, rounded)
        return {"rounded_TD": rounded.out_TD}

    return KernelCase(
        operator="transform_rms_norm_cast",
        name=f"{dtype}-width-{width}-rows-{rows}" + "-exact" * is_exact,
        spec=NormCastSpec(
            width=width,
            dtype=dtype,
            weight_dtype=weight_dtype,
            eps=EPS,
            number_format="mxfp8",
            row_stride=width,
        ),
        arguments=arguments,
        expect=expect,
        bounds=lambda _given, expected: {} if is_exact else format_steps(expected, "rounded_TD"),
        small=small,
        moved_bytes=0 if small else 4 * rows * width,
    )


def _collapses() -> list[KernelCase]:
    return [
        _collapse(rows=3, streams=4, width=5120),
        _collapse(rows=5, streams=4, width=512, is_exact=True),
        _collapse(rows=5, streams=4, width=64, dtype="float32", is_exact=True),
        # No format, no whole vector, and another number of streams.
        _collapse(rows=5, streams=3, width=25, number_format=None),
        _collapse(rows=2, streams=4, width=1024, number_format=None, is_exact=True),
        _collapse(rows=64, streams=4, width=5120, small=False),
        _collapse(rows=_MANY, streams=4, width=5120, small=False),
    ]


def _collapse(
    *,
    rows: int,
    streams: int,
    width: int,
    dtype: Dtype = "bfloat16",
    number_format: str | None = "mxfp8",
    is_exact: bool = False,
    small: bool = True,
) -> KernelCase:
    def arguments(generator: torch.Generator) -> Tensors:
        row = NormRows(generator, width, is_exact)
        if is_exact:
            # Every stream is the row, and their weights sum to one.
            trunk_TSD = row.rows(rows)[:, None].repeat(1, streams, 1)
            pre_TS = torch.tensor([0.5, 0.25, 0.125, 0.125]).repeat(rows, 1)
        else:
            trunk_TSD = torch.randn(rows, streams, width, generator=generator)
            pre_TS = torch.randn(rows, streams, generator=generator)
        given = {
            "trunk_TSD": trunk_TSD.to(torch_dtype(dtype)),
            "pre_TS": pre_TS,
            "weight_D": row.weight(),
            "out_TD": poisoned(rows, width, dtype=torch_dtype(dtype)),
        }
        if number_format is not None:
            given["rounded_TD"] = poisoned(rows, width, dtype=torch.bfloat16)
        return given

    def expect(given: Tensors) -> Tensors:
        out_TD = given["out_TD"]
        rounded = None
        if number_format is not None:
            rounded = Rounded(number_format=number_format, out_TD=given["rounded_TD"])
        inputs = given["trunk_TSD"], given["pre_TS"], given["weight_D"]
        _TWIN.collapse_norm(_PLAN, *inputs, EPS, out_TD, rounded)
        return {"out_TD": out_TD} | ({} if rounded is None else {"rounded_TD": rounded.out_TD})

    def bounds(_given: Tensors, expected: Tensors) -> Tensors:
        if is_exact:
            return {}
        out = {"out_TD": expected["out_TD"].double().abs() * norm_share(width, dtype)}
        return out if number_format is None else out | format_steps(expected, "rounded_TD")

    return KernelCase(
        operator="transform_collapse_norm",
        name=f"{dtype}-{streams}-streams-of-{width}-to-{number_format}-rows-{rows}"
        + "-exact" * is_exact,
        spec=CollapseNormSpec(
            streams=streams,
            width=width,
            dtype=dtype,
            weight_dtype="float32",
            eps=EPS,
            number_format=number_format,
        ),
        arguments=arguments,
        expect=expect,
        bounds=bounds,
        small=small,
        moved_bytes=0 if small else 2 * rows * (streams + 2) * width,
    )


def _norm_ropes() -> list[KernelCase]:
    return [
        _norm_rope(rows=3, width=512, pairs=32),
        _norm_rope(rows=3, width=128, pairs=32, keeps_normed=True),
        _norm_rope(rows=3, width=512, pairs=32, keeps_normed=True, is_exact=True),
        # Every channel turns.
        _norm_rope(rows=5, width=16, pairs=8, dtype="float32", is_exact=True),
        _norm_rope(rows=_MANY, width=512, pairs=32, small=False),
    ]


def _norm_rope(
    *,
    rows: int,
    width: int,
    pairs: int,
    dtype: Dtype = "bfloat16",
    keeps_normed: bool = False,
    is_exact: bool = False,
    small: bool = True,
) -> KernelCase:
    def arguments(generator: torch.Generator) -> Tensors:
        row = NormRows(generator, width, is_exact)
        angle_TP = 6 * torch.rand(rows, pairs, generator=generator)
        normed = {"normed_TD": poisoned(rows, width, dtype=torch_dtype(dtype))}
        return {
            "x_TD": row.rows(rows).to(torch_dtype(dtype)),
            "weight_D": row.weight(),
            "cosine_TP": angle_TP.cos(),
            "sine_TP": angle_TP.sin(),
            **(normed if keeps_normed else {}),
            "out_TD": poisoned(rows, width, dtype=torch_dtype(dtype)),
        }

    def expect(given: Tensors) -> Tensors:
        out_TD, normed_TD = given["out_TD"], given.get("normed_TD")
        angles = given["cosine_TP"], given["sine_TP"]
        x_TD, weight_D = given["x_TD"], given["weight_D"]
        _TWIN.norm_rope(_PLAN, x_TD, weight_D, EPS, *angles, normed_TD, out_TD)
        return {"out_TD": out_TD} | ({} if normed_TD is None else {"normed_TD": normed_TD})

    def bounds(_given: Tensors, expected: Tensors) -> Tensors:
        if is_exact:
            return {}
        # Both members of a pair are off by the norm's share of themselves, and what they become
        # is rounded once more; together they are no longer than the pair.
        size = expected["out_TD"].double().abs()
        turned = size[:, width - 2 * pairs :].view(rows, pairs, 2)
        turned.copy_(2**0.5 * turned.norm(dim=2, keepdim=True).expand_as(turned))
        share = norm_share(width, dtype) + 2 * roundoff(torch_dtype(dtype))
        found = {"out_TD": size * share}
        if keeps_normed:
            found["normed_TD"] = expected["normed_TD"].double().abs() * norm_share(width, dtype)
        return found

    return KernelCase(
        operator="transform_norm_rope",
        name=f"{dtype}-width-{width}-pairs-{pairs}-rows-{rows}"
        + "-both" * keeps_normed
        + "-exact" * is_exact,
        spec=NormRopeSpec(
            width=width,
            pairs=pairs,
            dtype=dtype,
            weight_dtype="float32",
            eps=EPS,
            keeps_normed=keeps_normed,
            row_stride=width,
        ),
        arguments=arguments,
        expect=expect,
        bounds=bounds,
        small=small,
        moved_bytes=0 if small else rows * (4 * width + 8 * pairs),
    )


@dataclass(frozen=True, slots=True)
class NormRows:
    """Rows for a norm: noise, or ones of random sign, whose norm is exactly themselves.

    Attributes:
        generator: of all numbers.
        width: D.
        is_exact: ones.
    """

    generator: torch.Generator
    width: int
    is_exact: bool

    def rows(self, count: int) -> torch.Tensor:
        """So many rows."""
        x_TD = torch.randn(count, self.width, generator=self.generator)
        return x_TD.sign() if self.is_exact else 3 * x_TD

    def weight(self) -> torch.Tensor:
        """Noise; for exact rows of all sizes, which then are those of the groups."""
        weight_D = torch.randn(self.width, generator=self.generator)
        if not self.is_exact:
            return weight_D
        power_G = torch.randint(-20, 21, (-(-self.width // 16),), generator=self.generator)
        return weight_D * torch.exp2(power_G).repeat_interleave(16)[: self.width]


def norm_share(width: int, dtype: Dtype) -> float:
    """Twin and kernel are each off by D / 2 + 8 roundings in fp32, and by one at the end.

    With a sum of streams in front, whose roundings are the same in both.
    """
    return 2 * ((width / 2 + 8) * roundoff(torch.float32) + roundoff(torch_dtype(dtype)))


def torch_dtype(name: Dtype) -> torch.dtype:
    """The dtype of a spec."""
    return torch.bfloat16 if name == "bfloat16" else torch.float32
