"""Which compressed entries does a row attend to?

Scores are computed in tiles of ``_ENTRY_TILE`` entries, one product of equal shape a row and tile,
so that a row's scores do not depend on other rows nor on how far the caches reach.

All choices are by descending score, then ascending index, by stable sorts. Entries at -inf are
never chosen.

Shapes: T rows, H heads, J width, S entries, B blocks of entries.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from deepinfer_core.interfaces.attention import CachePages, Indexer, IndexerSpec
from deepinfer_core.interfaces.component import Plan, Properties
from deepinfer_core.reference.arithmetic import WIDTH_ALIGNMENT, align_width, matrix_products
from deepinfer_core.reference.cache_codec import read_rows
from deepinfer_core.reference.promises import PROMISES

__all__ = ["ReferenceIndexer"]

_ENTRY_TILE = 256
_ROW_TILE = 64
"""Rows at a time; with 32 heads a tile of products takes 2 MB."""


@dataclass(frozen=True, kw_only=True)
class _IndexPlan(Plan):
    spec: IndexerSpec


class ReferenceIndexer(Indexer):
    """Scores in the accumulation dtype, exact choices."""

    @property
    def properties(self) -> Properties:
        """The promises of this component."""
        return PROMISES

    def plan_index(self, spec: IndexerSpec, max_rows: int) -> Plan:
        """Remember the sizes."""
        return _IndexPlan(max_rows=max_rows, spec=spec)

    def scores(
        self,
        plan: Plan,
        query_THJ: torch.Tensor,
        weight_TH: torch.Tensor,
        keys: CachePages,
        block_table_QB: torch.Tensor,
        sequence_T: torch.Tensor,
        visible_T: torch.Tensor,
        score_TS: torch.Tensor,
        *,
        rows_each: int = 1,
    ) -> None:
        """Score the visible entries, sequence by sequence."""
        score_TS.fill_(-torch.inf)
        accumulate = score_TS.dtype
        for sequence, start, end in _runs(sequence_T):
            table_B = block_table_QB[sequence]
            for first_row in range(start, end, _ROW_TILE):
                rows = slice(first_row, min(first_row + _ROW_TILE, end))
                _score_rows(
                    query_THJ[rows].to(accumulate),
                    weight_TH[rows].to(accumulate),
                    keys,
                    table_B,
                    visible_T[rows],
                    score_TS[rows],
                )

    def select(self, plan: Plan, score_TS: torch.Tensor, index_TL: torch.Tensor) -> None:
        """Keep the best entries of each row, ascending."""
        assert isinstance(plan, _IndexPlan)
        index_TL.fill_(-1)
        entries = score_TS.shape[1]
        kept = min(plan.spec.top_entries, entries)
        for start in range(0, score_TS.shape[0], _ROW_TILE):
            rows = slice(start, start + _ROW_TILE)
            chosen_TL = _best(score_TS[rows], kept)
            # Absent ones sort behind all entries, then become -1.
            chosen_TL = torch.where(chosen_TL < 0, entries, chosen_TL).sort(-1).values
            index_TL[rows, :kept] = chosen_TL.masked_fill_(chosen_TL == entries, -1)

    def restrict(
        self,
        plan: Plan,
        pool_score_TS: torch.Tensor,
        visible_T: torch.Tensor,
        score_TS: torch.Tensor,
    ) -> None:
        """Hide the entries outside the candidate pool."""
        assert isinstance(plan, _IndexPlan)
        if score_TS.shape[1] == 0:
            return
        for start in range(0, score_TS.shape[0], _ROW_TILE):
            rows = slice(start, start + _ROW_TILE)
            is_kept_TS = _pool(pool_score_TS[rows], visible_T[rows], plan.spec)
            score_TS[rows].masked_fill_(~is_kept_TS[:, : score_TS.shape[1]], -torch.inf)


def _runs(sequence_T: torch.Tensor) -> list[tuple[int, int, int]]:
    """Split rows where the sequence changes: (sequence, first row, end row)."""
    sequences, counts = torch.unique_consecutive(sequence_T, return_counts=True)
    ends = counts.cumsum(0)
    return list(zip(sequences.tolist(), (ends - counts).tolist(), ends.tolist(), strict=True))


def _score_rows(
    query_THJ: torch.Tensor,
    weight_TH: torch.Tensor,
    keys: CachePages,
    table_B: torch.Tensor,
    visible_T: torch.Tensor,
    score_TS: torch.Tensor,
) -> None:
    rows, heads, _ = query_THJ.shape
    # Heads without weight fill the sum over heads up to whole lines.
    query_THJ = torch.nn.functional.pad(align_width(query_THJ), (0, 0, 0, -heads % WIDTH_ALIGNMENT))
    weight_T1H = align_width(weight_TH)[:, None]
    reach = int(visible_T.max())
    for first in range(0, reach, _ENTRY_TILE):
        entry_X = torch.arange(first, first + _ENTRY_TILE, device=table_B.device)
        page_X = table_B[(entry_X // keys.rows_per_page).clamp(max=table_B.shape[0] - 1)]
        slot_X = page_X * keys.rows_per_page + entry_X % keys.rows_per_page
        slot_X = torch.where((entry_X < reach) & (page_X >= 0), slot_X, -1)
        key_XJ = read_rows(keys, slot_X, query_THJ.dtype)
        key_TJX = align_width(key_XJ).t().expand(rows, -1, _ENTRY_TILE)
        dots_THX = matrix_products(query_THJ, key_TJX)
        sums_TX = matrix_products(weight_T1H, dots_THX.relu_())[:, 0]
        sums_TX.masked_fill_(entry_X >= visible_T[:, None], -torch.inf)
        columns = min(_ENTRY_TILE, score_TS.shape[1] - first)
        score_TS[:, first : first + columns] = sums_TX[:, :columns]


def _best(score_TS: torch.Tensor, kept: int) -> torch.Tensor:
    """Indices of the best entries, best first; -1 where only -inf is left."""
    score_TS, order_TS = score_TS.sort(dim=-1, descending=True, stable=True)
    return order_TS[:, :kept].masked_fill(~(score_TS[:, :kept] > -torch.inf), -1)


def _pool(pool_score_TS: torch.Tensor, visible_T: torch.Tensor, spec: IndexerSpec) -> torch.Tensor:
    """Whether each entry lies in a kept block, [T, S rounded up to whole blocks]."""
    entries = pool_score_TS.shape[1]
    finite = torch.finfo(pool_score_TS.dtype)
    is_visible_TS = torch.arange(entries, device=visible_T.device) < visible_T[:, None]
    score_TS = pool_score_TS.clamp(finite.min, finite.max)
    score_TS = score_TS.masked_fill_(~is_visible_TS, -torch.inf)
    padded = torch.nn.functional.pad(score_TS, (0, -entries % spec.block_entries), value=-torch.inf)
    best_TB = padded.view(len(padded), -1, spec.block_entries).amax(-1)
    # The block of the last visible entry comes first of all.
    blocks = best_TB.shape[1]
    last_T = torch.where(visible_T > 0, (visible_T - 1) // spec.block_entries, blocks)
    block_B = torch.arange(blocks, device=last_T.device)
    best_TB.masked_fill_(block_B == last_T[:, None], torch.inf)
    chosen_TX = _best(best_TB, spec.top_blocks)
    is_kept_TB = best_TB.new_zeros(best_TB.shape[0], blocks + 1, dtype=torch.bool)
    is_kept_TB.scatter_(1, torch.where(chosen_TX < 0, blocks, chosen_TX), True)
    return is_kept_TB[:, :blocks].repeat_interleave(spec.block_entries, 1)
