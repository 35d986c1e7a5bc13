"""How does a row attend over its listed keys by kernels for an NVIDIA GPU?

One kernel for prompts and for decoding, chosen by shapes and formats alone, so that a row has the
same bits in both. Absent keys cost nothing, and moving them around in a list changes no bit.
Kernels are compiled for a list's length rounded up, never for a number of rows or pages.

Shapes: T rows, N heads, D width, L listed keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import gcd

import torch
from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.attention import (
    AttentionSpec,
    CachePages,
    KeySource,
    SparseAttention,
)
from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.operators.attention import KeySourceSpec, SparseAttentionSpec
from deepinfer_core.interfaces.operators.catalogue import Kernels
from deepinfer_core.numeric import number_format

from deepinfer_nvidia.kernels.arguments import check, dense
from deepinfer_nvidia.kernels.choice import Target, choose
from deepinfer_nvidia.kernels.launch import Wanted, launches

__all__ = ["TileLangSparseAttention"]

_FORMATS = ("mxfp8", "fp4_e4m3x16", "bfloat16", "float32")
_MOST_SOURCES = 2
_WIDTH_STEP = 64
_LIST_STEP = 64
_VECTOR_BYTES = 16
_MOST_SLOTS = 2**31


@dataclass(frozen=True, kw_only=True)
class _AttentionPlan(Plan):
    spec: AttentionSpec
    dtype: torch.dtype


class TileLangSparseAttention(SparseAttention):
    """Softmax over the keys of all sources and the sink.

    Args:
        kernels: runs the kernels.
        is_hopper: whether the kernel for SM90 serves the shapes that it was written for.
    """

    def __init__(self, kernels: Kernels, *, is_hopper: bool = False) -> None:
        self._attend = launches(kernels, partial(_kernel, Target(is_hopper=is_hopper)))

    def plan(self, spec: AttentionSpec, max_rows: int) -> Plan:
        """Remember the list lengths.

        Raises:
            NotSupported: a number of key sources, a width or a dtype without a kernel.
        """
        if not 1 <= len(spec.list_lengths) <= _MOST_SOURCES:
            raise NotSupported(
                f"asked for attention over {len(spec.list_lengths)} key sources, found kernels for"
                f" 1 to {_MOST_SOURCES}",
                hint="list the window, even if all of its entries are -1, or join lists",
            )
        if spec.head_width % _WIDTH_STEP or spec.compute not in ("bfloat16", "float32"):
            raise NotSupported(
                f"asked for heads of {spec.head_width} channels in {spec.compute}, found kernels"
                f" for multiples of {_WIDTH_STEP} in bfloat16 and float32",
                hint="choose core.reference, which takes any width and dtype",
            )
        dtype = number_format(spec.compute).storage
        return _AttentionPlan(max_rows=max_rows, spec=spec, dtype=dtype)

    def run(
        self,
        plan: Plan,
        q_TND: torch.Tensor,
        sources: Sequence[KeySource],
        sink_N: torch.Tensor,
        scale: float,
        out_TND: torch.Tensor,
        lse_TN: torch.Tensor,
    ) -> None:
        """Attend in one launch."""
        assert isinstance(plan, _AttentionPlan)
        form, rows = plan.spec, q_TND.shape[0]
        if not rows:
            return
        tensors: dict[str, torch.Tensor] = {}
        for number, (source, length) in enumerate(zip(sources, form.list_lengths, strict=True)):
            tensors |= _source(number, source, rows, length, form.head_width)
        shape = (rows, form.heads, form.head_width)
        attend = self._attend(form, scale, *map(_page_form, sources))
        attend(
            q_TND=check(dense(q_TND), plan.dtype, *shape),
            **tensors,
            sink_N=check(dense(sink_N), torch.float32, form.heads),
            out_TND=check(out_TND, plan.dtype, *shape),
            lse_TN=check(lse_TN, torch.float32, *shape[:2]),
        )


def _kernel(target: Target, form: AttentionSpec, scale: float, *pages: tuple[str, int]) -> Wanted:
    """The kernel for lists up to a rounded length, over pages of these forms."""
    sources = [
        KeySourceSpec(
            number_format=name,
            list_capacity=max(1, -(-length // _LIST_STEP)) * _LIST_STEP,
            rows_per_page=rows_per_page,
        )
        for (name, rows_per_page), length in zip(pages, form.list_lengths, strict=True)
    ]
    spec = SparseAttentionSpec(
        heads=form.heads,
        head_width=form.head_width,
        sources=tuple(sources),
        compute=form.compute,
        scale=scale,
    )
    choice = choose("attention_sparse", spec, target)
    return choice.build, spec, choice.tuning


def _page_form(source: KeySource) -> tuple[str, int]:
    """Number format, and rows of a page; 0 where there is one page only."""
    pages = source.pages
    return pages.number_format, 0 if pages.data_PB.shape[0] == 1 else pages.rows_per_page


def _source(
    number: int, source: KeySource, rows: int, length: int, width: int
) -> dict[str, torch.Tensor]:
    """The arguments of one source."""
    pages, slot_TL = source.pages, source.slot_TL
    data_PE = _checked_pages(pages, width).view(number_format(pages.number_format).storage)
    if slot_TL.shape != (rows, length) or slot_TL.dtype != torch.int64:
        raise NotSupported(
            f"asked for int64 lists of {(rows, length)} slots, found {slot_TL.dtype} of"
            f" {tuple(slot_TL.shape)}",
            hint="plan for the length of the lists, and list slots for every row",
        )
    if slot_TL.stride(1) != 1:
        slot_TL = slot_TL.clone(memory_format=torch.contiguous_format)
    return {
        f"data_{number}_PE": data_PE,
        f"scale_{number}_PB": pages.data_PB,
        f"slot_{number}_TL": slot_TL,
    }


def _checked_pages(pages: CachePages, width: int) -> torch.Tensor:
    """Bytes of pages whose rows start where the kernels' vectors do.

    Raises:
        NotSupported: another width, a format without a kernel, more slots than the kernels count,
            scales behind all data, or pages or rows off their places.
    """
    data_PB = pages.data_PB
    if pages.width != width or pages.number_format not in _FORMATS or pages.scales_apart:
        raise NotSupported(
            f"asked for keys of width {pages.width} in {pages.number_format} for queries of width"
            f" {width}, found kernels for one width, in {', '.join(_FORMATS)}, with scales in rows",
            hint="keep the caches in one of these formats, or choose core.reference",
        )
    row_bytes = number_format(pages.number_format).row_bytes(width)
    step = gcd(_VECTOR_BYTES, row_bytes)
    used_bytes = pages.rows_per_page * row_bytes
    distance = data_PB.stride(0) if data_PB.shape[0] > 1 else used_bytes
    if (
        data_PB.shape[1] < used_bytes
        or data_PB.stride(1) != 1
        or data_PB.data_ptr() % step
        or distance % step
        or data_PB.shape[0] * pages.rows_per_page >= _MOST_SLOTS
    ):
        raise NotSupported(
            f"asked for {data_PB.shape[0]} pages of {used_bytes} bytes at multiples of {step},"
            f" found {data_PB.shape[1]} bytes with strides {data_PB.stride()}",
            hint="give each page room for its rows, and start it at a multiple of a vector",
        )
    return data_PB
