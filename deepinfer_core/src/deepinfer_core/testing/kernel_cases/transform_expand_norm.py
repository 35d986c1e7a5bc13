"""Which inputs does the kernel get that mixes streams and norms their weighted sum?

The streams must have the twin's bits; the norm too, where it is exact.

Shapes: T rows, S streams, D width.
"""

from __future__ import annotations

import torch

from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.operators.transform_runs import CollapseNormSpec
from deepinfer_core.interfaces.transform import Rounded
from deepinfer_core.reference.transform import ReferenceTransform
from deepinfer_core.testing.kernel_cases.case import KernelCase, Tensors, poisoned
from deepinfer_core.testing.kernel_cases.transform_norm_runs import (
    EPS,
    Dtype,
    NormRows,
    norm_share,
    torch_dtype,
)
from deepinfer_core.testing.kernel_cases.transform_runs import format_steps

__all__ = ["cases"]

_TWIN = ReferenceTransform()
_PLAN = Plan(max_rows=1 << 20)


def cases() -> list[KernelCase]:
    """All cases of the kernel."""
    return [
        _expand(rows=2, streams=4, width=5120),
        _expand(rows=3, streams=4, width=512, is_exact=True),
        _expand(rows=3, streams=4, width=64, dtype="float32", is_exact=True),
        # No format, no whole vector, and another number of streams.
        _expand(rows=3, streams=3, width=25, number_format=None),
        _expand(rows=2, streams=4, width=1024, number_format=None, is_exact=True),
        _expand(rows=64, streams=4, width=5120, small=False),
        _expand(rows=4096, streams=4, width=5120, small=False),
    ]


def _expand(
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
        trunk_TSD = torch.randn(rows, streams, width, generator=generator)
        y_TD = torch.randn(rows, width, generator=generator)
        post_TS = torch.randn(rows, streams, generator=generator)
        comb_TSS = torch.randn(rows, streams, streams, generator=generator)
        pre_TS = torch.randn(rows, streams, generator=generator)
        if is_exact:
            # Every stream, the output, and so every mixture whose weights sum to one, is the row.
            y_TD = row.rows(rows)
            trunk_TSD = y_TD[:, None].repeat(1, streams, 1)
            post_TS = torch.full_like(post_TS, 0.5)
            comb_TSS = torch.full_like(comb_TSS, 0.125)
            pre_TS = torch.tensor([0.5, 0.25, 0.125, 0.125]).repeat(rows, 1)
        given = {
            "trunk_TSD": trunk_TSD.to(torch_dtype(dtype)),
            "y_TD": y_TD.to(torch_dtype(dtype)),
            "post_TS": post_TS,
            "comb_TSS": comb_TSS,
            "pre_TS": pre_TS,
            "weight_D": row.weight(),
            "out_TSD": poisoned(rows, streams, width, dtype=torch_dtype(dtype)),
            "normed_TD": poisoned(rows, width, dtype=torch_dtype(dtype)),
        }
        if number_format is not None:
            given["rounded_TD"] = poisoned(rows, width, dtype=torch.bfloat16)
        return given

    def expect(given: Tensors) -> Tensors:
        rounded = None
        if number_format is not None:
            rounded = Rounded(number_format=number_format, out_TD=given["rounded_TD"])
        outputs = {name: given[name] for name in ("out_TSD", "normed_TD")}
        _TWIN.expand_norm(
            _PLAN,
            given["trunk_TSD"],
            given["y_TD"],
            given["post_TS"],
            given["comb_TSS"],
            given["pre_TS"],
            given["weight_D"],
            EPS,
            given["out_TSD"],
            given["normed_TD"],
            rounded,
        )
        return outputs | ({} if rounded is None else {"rounded_TD": rounded.out_TD})

    def bounds(_given: Tensors, expected: Tensors) -> Tensors:
        if is_exact:
            return {}
        normed = {"normed_TD": expected["normed_TD"].double().abs() * norm_share(width, dtype)}
        return normed if number_format is None else normed | format_steps(expected, "rounded_TD")

    return KernelCase(
        operator="transform_expand_norm",
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
        moved_bytes=0 if small else 2 * rows * (2 * streams + 3) * width,
    )
