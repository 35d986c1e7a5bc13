"""Which compressed entries does a row attend to, by kernels in TileLang?

Scores are fp32 sums of fixed order, which neither tiles nor other rows change; choices are exact,
by descending score, then ascending index.

Shapes: T rows, H heads, J width, S entries, Q sequences, B blocks, L kept entries.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.attention import CachePages, Indexer, IndexerSpec
from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.operators.cache import (
    CandidateBlocksSpec,
    IndexScoresSpec,
    SelectTopSpec,
)
from deepinfer_core.interfaces.operators.catalogue import Kernels

from deepinfer_nvidia.attention.pages import page_views
from deepinfer_nvidia.kernels import (
    attention_candidate_blocks,
    attention_index_scores,
    attention_index_scores_wide,
    attention_select_top,
)
from deepinfer_nvidia.kernels.arguments import check, dense, dtype_name, shaped
from deepinfer_nvidia.kernels.tuning import KernelTuning, table

__all__ = ["TileLangIndexer"]

_FP32, _INT64 = torch.float32, torch.int64


@dataclass(frozen=True, kw_only=True)
class _IndexPlan(Plan):
    spec: IndexerSpec


class TileLangIndexer(Indexer):
    """Scores in fp32, exact choices.

    Args:
        kernels: runs them.
    """

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels

    def plan_index(self, spec: IndexerSpec, max_rows: int) -> Plan:
        """Remember the sizes.

        Raises:
            NotSupported: blocks without entries, or nothing to keep.
        """
        if min(spec.block_entries, spec.top_entries, spec.top_blocks, spec.heads) < 1:
            raise NotSupported(
                f"asked for an indexer with {spec}, found at least one of each",
                hint="check the model's configuration",
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
        """Score the visible entries: on tensor cores if keys are MXFP4 and queries bf16."""
        rows, heads, _ = query_THJ.shape
        sequences, blocks = block_table_QB.shape
        entries = score_TS.shape[1]
        if not rows or not entries:
            return
        if not blocks:
            score_TS.fill_(-torch.inf)
            return
        views = page_views(keys, words=True)
        spec = IndexScoresSpec(
            heads=heads,
            pages=views.spec,
            dtype=dtype_name(query_THJ.dtype),
            weight_dtype=dtype_name(weight_TH.dtype),
        )
        arguments = {
            "query_THJ": check(dense(query_THJ), query_THJ.dtype, rows, heads, keys.width),
            "weight_TH": check(dense(weight_TH), weight_TH.dtype, rows, heads),
            **views.arguments(),
            "block_table_QB": shaped(block_table_QB.contiguous(), _INT64, sequences, blocks),
            "sequence_T": shaped(sequence_T, _INT64, rows),
            "visible_T": shaped(visible_T, _INT64, rows),
            "score_TS": check(score_TS, _FP32, rows, entries),
        }
        if keys.number_format == "mxfp4" and spec.dtype == "bfloat16":
            build, tuning = attention_index_scores.build, _tuning(rows_each, rows * entries)
            self._kernels.call(build, spec, tuning, **arguments)
        else:
            self._kernels.call(
                attention_index_scores_wide.build,
                spec,
                attention_index_scores_wide.default_tuning(spec),
                **arguments,
            )

    def select(self, plan: Plan, score_TS: torch.Tensor, index_TL: torch.Tensor) -> None:
        """Keep the best entries of each row, ascending.

        Raises:
            NotSupported: more entries than positions have digits for.
        """
        assert isinstance(plan, _IndexPlan)
        rows, entries = score_TS.shape
        if not rows or not entries:
            index_TL.fill_(-1)
            return
        _check_places(entries)
        spec = SelectTopSpec(top_entries=plan.spec.top_entries)
        self._kernels.call(
            attention_select_top.build,
            spec,
            attention_select_top.default_tuning(spec),
            score_TS=check(score_TS, _FP32, rows, entries),
            index_TL=shaped(index_TL, _INT64, rows, spec.top_entries),
        )

    def restrict(
        self,
        plan: Plan,
        pool_score_TS: torch.Tensor,
        visible_T: torch.Tensor,
        score_TS: torch.Tensor,
    ) -> None:
        """Hide the entries outside the candidate pool.

        Raises:
            NotSupported: more entries than positions have digits for.
        """
        assert isinstance(plan, _IndexPlan)
        rows, entries = score_TS.shape
        if not rows or not entries:
            return
        _check_places(max(entries, pool_score_TS.shape[1]))
        spec = CandidateBlocksSpec(
            block_entries=plan.spec.block_entries, top_blocks=plan.spec.top_blocks
        )
        self._kernels.call(
            attention_candidate_blocks.build,
            spec,
            attention_candidate_blocks.default_tuning(spec),
            pool_score_TS=check(pool_score_TS, _FP32, rows, pool_score_TS.shape[1]),
            visible_T=shaped(visible_T, _INT64, rows),
            score_TS=check(score_TS, _FP32, rows, entries),
        )


@functools.cache
def _tuning(rows_each: int, scores: int) -> KernelTuning:
    """Rows of one sequence share widened keys; few rows need many small blocks."""
    measured = table.entries("attention_index_scores")
    together = min(rows_each, max(one.figures["rows_each"] for one in measured))
    return [
        one.tuning
        for one in measured
        if one.figures["rows_each"] == together and one.figures["least_scores"] <= scores
    ][-1]


def _check_places(entries: int) -> None:
    if entries > attention_select_top.MOST_ENTRIES:
        raise NotSupported(
            f"asked to choose among {entries} entries, found room for"
            f" {attention_select_top.MOST_ENTRIES}",
            hint="limit the length of a sequence, or choose core.reference",
        )
