"""How does a row attend over its listed keys with the compiled kernels?

One kernel for prompts and for decoding: it decodes the present keys of a row from their pages, in
list order, and leaves absent ones out. Moving absent entries around in a list changes no bit.

Shapes: T rows, N heads, D width, L listed keys.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.attention import AttentionSpec, KeySource, SparseAttention
from deepinfer_core.interfaces.component import Plan
from deepinfer_core.native.addresses import address, row_major, slice_address
from deepinfer_core.native.library import bind
from deepinfer_core.native.pages import page_words
from deepinfer_core.native.tensors import type_code
from deepinfer_core.numeric import number_format

__all__ = ["CpuSparseAttention"]

_FP32, _INT64 = torch.float32, torch.int64


@dataclass(frozen=True, kw_only=True)
class _AttentionPlan(Plan):
    spec: AttentionSpec


class CpuSparseAttention(SparseAttention):
    """Softmax over the keys of all sources and the sink, in fp32.

    Args:
        library: the compiled kernels.
        threads: threads that share the rows of one call.
    """

    def __init__(self, library: ctypes.CDLL, threads: int) -> None:
        self._attend = bind(library, "di_attend", "pllllblpfppl")
        self._attention_threads = threads

    def plan(self, spec: AttentionSpec, max_rows: int) -> Plan:
        """Remember the list lengths.

        Raises:
            NotSupported: there is no key source, an odd width, or fp64.
        """
        if not spec.list_lengths:
            raise NotSupported(
                "asked for attention without a key source, found that it needs one",
                hint="list the window, even if all of its entries are -1",
            )
        if spec.head_width % 2:
            raise NotSupported(
                f"asked for heads of {spec.head_width} channels, found kernels for an even number",
                hint="choose core.reference, which takes any width",
            )
        type_code(number_format(spec.compute).storage)
        return _AttentionPlan(max_rows=max_rows, spec=spec)

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
        """Attend, row by row."""
        assert isinstance(plan, _AttentionPlan)
        q_TND = row_major(q_TND)
        rows, heads, width = q_TND.shape
        words = array("q")
        for source, length in zip(sources, plan.spec.list_lengths, strict=True):
            words.extend(_source_words(source, rows, length, width))
        self._attend(
            address(q_TND, q_TND.dtype, (rows, plan.spec.heads, plan.spec.head_width)),
            type_code(q_TND.dtype),
            rows,
            heads,
            width,
            words.tobytes(),
            len(sources),
            address(sink_N, _FP32, (heads,)),
            scale,
            address(out_TND, q_TND.dtype, q_TND.shape),
            address(lse_TN, _FP32, (rows, heads)),
            self._attention_threads,
        )


def _source_words(source: KeySource, rows: int, length: int, width: int) -> tuple[int, ...]:
    """``key_source`` of ``kernels/attention.c``: pages, then lists."""
    slot_TL = source.slot_TL
    if source.pages.width != width or slot_TL.stride(1) != 1:
        raise NotSupported(
            f"asked for keys of width {width}, found pages of width {source.pages.width} and lists"
            f" with strides {slot_TL.stride()}",
            hint="queries and keys have one width, and a list's entries lie one behind the other",
        )
    slots = slice_address(slot_TL, _INT64, (rows, length))
    return (*page_words(source.pages), slots, length, slot_TL.stride(0))
