"""How does a row attend over its listed keys?

Every listed key is gathered and decoded, its score is one dot product, and one softmax runs over
the keys of all sources and the sink.

A row's bits depend on its query, its keys in list order and the list lengths, on nothing else: the
products are calls of one shape, one a row (see ``arithmetic``). Absent entries weigh exactly
zero wherever they stand; but moving them moves the keys, which changes the order of the sums
and so the last bits of the result.

Shapes: T rows, N heads, D width, L listed keys over all sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.attention import (
    AttentionSpec,
    CachePages,
    KeySource,
    SparseAttention,
)
from deepinfer_core.interfaces.component import Plan, Properties
from deepinfer_core.reference.arithmetic import (
    WIDTH_ALIGNMENT,
    accumulation_dtype,
    align_width,
    matrix_products,
    row_sum,
)
from deepinfer_core.reference.cache_codec import read_rows
from deepinfer_core.reference.promises import PROMISES

__all__ = ["ReferenceSparseAttention"]

_ROW_TILE = 64
"""Rows at a time, which bounds the memory of gathered keys: 64 rows with 640 keys of 512 fp32
channels take 84 MB."""


@dataclass(frozen=True, kw_only=True)
class _AttentionPlan(Plan):
    spec: AttentionSpec


class ReferenceSparseAttention(SparseAttention):
    """One path for prompts and for decoding."""

    @property
    def properties(self) -> Properties:
        """The promises of this component."""
        return PROMISES

    def plan(self, spec: AttentionSpec, max_rows: int) -> Plan:
        """Remember the list lengths.

        Raises:
            NotSupported: there is no key source.
        """
        if not spec.list_lengths:
            raise NotSupported(
                "asked for attention without a key source, found that it needs one",
                hint="list the window, even if all of its entries are -1",
            )
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
        """Attend, a tile of rows at a time."""
        assert isinstance(plan, _AttentionPlan)
        accumulate = accumulation_dtype(q_TND.dtype)
        for start in range(0, q_TND.shape[0], _ROW_TILE):
            rows = slice(start, start + _ROW_TILE)
            key_TLD, absent_TL = _keys(sources, rows, accumulate)
            q = align_width(q_TND[rows].to(accumulate))
            out, lse = _attend(q, key_TLD, absent_TL, sink_N, scale)
            out_TND[rows] = out[..., : plan.spec.head_width]
            lse_TN[rows] = lse


def _keys(
    sources: Sequence[KeySource], rows: slice, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Decode the keys that rows list, [T, L, D], and say which are absent, [T, L].

    Absent keys fill L up to whole lines, because the second product sums over it.
    """
    slots = [source.slot_TL[rows] for source in sources]
    keys = [
        _gather(source.pages, slot_TL, dtype)
        for source, slot_TL in zip(sources, slots, strict=True)
    ]
    slot_TL, key_TLD = torch.cat(slots, 1), align_width(torch.cat(keys, 1))
    missing = -slot_TL.shape[1] % WIDTH_ALIGNMENT
    if missing:
        slot_TL = torch.nn.functional.pad(slot_TL, (0, missing), value=-1)
        key_TLD = torch.nn.functional.pad(key_TLD, (0, 0, 0, missing))
    return key_TLD, slot_TL < 0


def _gather(pages: CachePages, slot_TL: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Decode listed keys; a key that several rows list is decoded once."""
    if slot_TL.shape[0] == 1:
        return read_rows(pages, slot_TL, dtype)
    distinct_X, place_TL = torch.unique(slot_TL, return_inverse=True)
    return read_rows(pages, distinct_X, dtype)[place_TL]


def _attend(
    q_TND: torch.Tensor,
    key_TLD: torch.Tensor,
    absent_TL: torch.Tensor,
    sink_N: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Give the blend of keys [T, N, D] and the log of the sum over keys [T, N].

    Exponentials are taken relative to the largest key. A sink far above all keys overflows to
    infinity in the divisor, which gives the right result: zero.
    """
    score_TNL = matrix_products(q_TND, key_TLD.transpose(1, 2)).mul_(scale)
    score_TNL.masked_fill_(absent_TL[:, None], -torch.inf)
    # Without a key the maximum is -inf; the lowest number keeps -inf minus -inf out.
    largest_TN = score_TNL.amax(-1).clamp_(min=torch.finfo(score_TNL.dtype).min)
    weight_TNL = score_TNL.sub_(largest_TN[..., None]).exp_()
    sum_TN = row_sum(weight_TNL)
    is_empty_TN = sum_TN == 0
    divisor_TN = (sum_TN + torch.exp(sink_N - largest_TN)).masked_fill_(is_empty_TN, 1)
    out_TND = matrix_products(weight_TNL, key_TLD).div_(divisor_TN[..., None])
    lse_TN = largest_TN.add_(sum_TN.log_()).masked_fill_(is_empty_TN, torch.inf)
    return out_TND, lse_TN
