"""Which compressed entries does a row attend to, by the compiled kernels?

Scores are sums of fixed order; choices are exact, by descending score, then ascending index.

Shapes: T rows, H heads, J width, S entries, Q sequences, B blocks of entries.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch

from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.attention import CachePages, Indexer, IndexerSpec
from deepinfer_core.interfaces.component import Plan
from deepinfer_core.native.addresses import address, row_major
from deepinfer_core.native.library import bind
from deepinfer_core.native.pages import page_words
from deepinfer_core.native.tensors import type_code

__all__ = ["CpuIndexer"]

_FP32, _INT64 = torch.float32, torch.int64


@dataclass(frozen=True, kw_only=True)
class _IndexPlan(Plan):
    spec: IndexerSpec


class CpuIndexer(Indexer):
    """Scores in fp32, exact choices.

    Args:
        library: the compiled kernels.
        threads: threads that share the rows of one call.
    """

    def __init__(self, library: ctypes.CDLL, threads: int) -> None:
        self._scores = bind(library, "di_index_scores", "plpllllpllllplpppll")
        self._select = bind(library, "di_select", "plllp")
        self._restrict = bind(library, "di_restrict", "plplllpl")
        self._index_threads = threads

    def plan_index(self, spec: IndexerSpec, max_rows: int) -> Plan:
        """Remember the sizes.

        Raises:
            NotSupported: blocks without entries, or an odd width.
        """
        if spec.block_entries < 1 or spec.width % 2:
            raise NotSupported(
                f"asked for candidate blocks of {spec.block_entries} entries and index keys of"
                f" {spec.width} channels, found at least 1 and an even number",
                hint="check the model's configuration, or choose core.reference",
            )
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
        query_THJ, weight_TH = row_major(query_THJ), row_major(weight_TH)
        block_table_QB = row_major(block_table_QB)
        rows, heads, _ = query_THJ.shape
        data, stride, rows_per_page, width, code, apart = page_words(keys)
        self._scores(
            address(query_THJ, query_THJ.dtype, (rows, heads, width)),
            type_code(query_THJ.dtype),
            address(weight_TH, weight_TH.dtype, (rows, heads)),
            type_code(weight_TH.dtype),
            rows,
            heads,
            width,
            data,
            stride,
            rows_per_page,
            code,
            apart,
            address(block_table_QB, _INT64, block_table_QB.shape),
            block_table_QB.shape[1],
            address(sequence_T, _INT64, (rows,)),
            address(visible_T, _INT64, (rows,)),
            address(score_TS, _FP32, (rows, score_TS.shape[1])),
            score_TS.shape[1],
            self._index_threads,
        )

    def select(self, plan: Plan, score_TS: torch.Tensor, index_TL: torch.Tensor) -> None:
        """Keep the best entries of each row, ascending."""
        assert isinstance(plan, _IndexPlan)
        rows, entries = score_TS.shape
        kept = plan.spec.top_entries
        self._select(
            address(score_TS, _FP32, (rows, entries)),
            rows,
            entries,
            kept,
            address(index_TL, _INT64, (rows, kept)),
        )

    def restrict(
        self,
        plan: Plan,
        pool_score_TS: torch.Tensor,
        visible_T: torch.Tensor,
        score_TS: torch.Tensor,
    ) -> None:
        """Hide the entries outside the candidate pool."""
        assert isinstance(plan, _IndexPlan)
        rows, entries = score_TS.shape
        pool_entries = pool_score_TS.shape[1]
        self._restrict(
            address(pool_score_TS, _FP32, (rows, pool_entries)),
            pool_entries,
            address(visible_T, _INT64, (rows,)),
            rows,
            plan.spec.block_entries,
            plan.spec.top_blocks,
            address(score_TS, _FP32, (rows, entries)),
            entries,
        )
