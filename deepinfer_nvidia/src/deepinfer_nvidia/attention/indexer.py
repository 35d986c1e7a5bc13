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
    RowPagesSpec,
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
from deepinfer_nvidia.kernels.launch import Wanted, launches
from deepinfer_nvidia.kernels.tuning import table

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
        self._score = launches(kernels, _scores_kernel)
        self._select = launches(kernels, _select_kernel)
        self._restrict = launches(kernels, _restrict_kernel)

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
        number = _tuning_number(rows_each, rows * entries)
        score = self._score(heads, views.spec, query_THJ.dtype, weight_TH.dtype, number)
        score(
            query_THJ=check(dense(query_THJ), query_THJ.dtype, rows, heads, keys.width),
            weight_TH=check(dense(weight_TH), weight_TH.dtype, rows, heads),
            **views.arguments(),
            block_table_QB=shaped(block_table_QB.contiguous(), _INT64, sequences, blocks),
            sequence_T=shaped(sequence_T, _INT64, rows),
            visible_T=shaped(visible_T, _INT64, rows),
            score_TS=check(score_TS, _FP32, rows, entries),
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
        kept = plan.spec.top_entries
        select = self._select(kept)
        select(
            score_TS=check(score_TS, _FP32, rows, entries),
            index_TL=shaped(index_TL, _INT64, rows, kept),
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
        restrict = self._restrict(plan.spec.block_entries, plan.spec.top_blocks)
        restrict(
            pool_score_TS=check(pool_score_TS, _FP32, rows, pool_score_TS.shape[1]),
            visible_T=shaped(visible_T, _INT64, rows),
            score_TS=check(score_TS, _FP32, rows, entries),
        )


def _scores_kernel(
    heads: int, keys: RowPagesSpec, dtype: torch.dtype, weight_dtype: torch.dtype, number: int
) -> Wanted:
    """On tensor cores if keys are MXFP4 and queries bf16, with a measured tuning."""
    spec = IndexScoresSpec(
        heads=heads, pages=keys, dtype=dtype_name(dtype), weight_dtype=dtype_name(weight_dtype)
    )
    if keys.number_format == "mxfp4" and dtype is torch.bfloat16:
        measured = table.entries("attention_index_scores")[number]
        return attention_index_scores.build, spec, measured.tuning
    wide = attention_index_scores_wide
    return wide.build, spec, wide.default_tuning(spec)


def _tuning_number(rows_each: int, scores: int) -> int:
    """Rows of one sequence share widened keys; few rows need many small blocks."""
    least = _least_scores()
    fitting = least[min(rows_each, max(least))]
    return max(number for number, lowest in fitting if lowest <= scores)


@functools.cache
def _least_scores() -> dict[int, list[tuple[int, float]]]:
    """Places of measured tunings and the scores from which on they are best, by rows each."""
    found: dict[int, list[tuple[int, float]]] = {}
    for number, one in enumerate(table.entries("attention_index_scores")):
        places = found.setdefault(int(one.figures["rows_each"]), [])
        places.append((number, one.figures["least_scores"]))
    return found


def _select_kernel(top_entries: int) -> Wanted:
    spec = SelectTopSpec(top_entries=top_entries)
    return attention_select_top.build, spec, attention_select_top.default_tuning(spec)


def _restrict_kernel(block_entries: int, top_blocks: int) -> Wanted:
    spec = CandidateBlocksSpec(block_entries=block_entries, top_blocks=top_blocks)
    return attention_candidate_blocks.build, spec, attention_candidate_blocks.default_tuning(spec)


def _check_places(entries: int) -> None:
    if entries > attention_select_top.MOST_ENTRIES:
        raise NotSupported(
            f"asked to choose among {entries} entries, found room for"
            f" {attention_select_top.MOST_ENTRIES}",
            hint="limit the length of a sequence, or choose core.reference",
        )
