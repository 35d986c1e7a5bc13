"""Which compressed entries does a row attend to?

An index source scores all visible entries with narrow keys and keeps the best; the layers behind it
use its choice until the next source. Sources behind the one that builds the candidate pool choose
only within the pool.

Shapes: T rows, D hidden width, K query rank, H index heads, J index width, S entries, L kept
entries.
"""

from dataclasses import dataclass

import torch

from deepinfer_core.interfaces.attention import CacheCodec, Indexer, IndexerSpec
from deepinfer_core.interfaces.component import Plan
from deepinfer_core.model.context import StepContext
from deepinfer_core.model.operators import Linear, Planned
from deepinfer_core.model.row_operators import RowOperators

__all__ = ["Selector"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """The index queries of one layer and what becomes of their scores.

    Attributes:
        layer: number of the layer, for probes.
        owner: layer that owns the index keys.
        ratio: tokens of an entry.
        builds_pool: its scores make the candidate pool.
        uses_pool: it selects within the pool.
        rows: row operators.
        indexer: scores and selects.
        codec: finds the slots of what is selected.
        spec: widths and numbers of kept entries.
        plan: the indexer's plan.
        index_format: what queries are rounded to.
        query: query latent to all index heads.
        head_weight: hidden to one signed weight a head.
    """

    layer: int
    owner: int
    ratio: int
    builds_pool: bool
    uses_pool: bool
    rows: RowOperators
    indexer: Indexer
    codec: CacheCodec
    spec: IndexerSpec
    plan: Planned[Plan]
    index_format: str
    query: Linear
    head_weight: Linear

    def __call__(self, x_TD: torch.Tensor, latent_TK: torch.Tensor, step: StepContext) -> None:
        """Choose entries and leave their slots, and the pool's scores, in ``step.selection``."""
        entries = step.entries[self.ratio]
        plan = self.plan(x_TD.shape[0])
        score_TS = self._scores(plan, x_TD, latent_TK, step)
        # A pool of so few blocks holds every entry.
        is_pool_whole = entries.most_visible <= self.spec.top_blocks * self.spec.block_entries
        if self.builds_pool:
            step.selection.pool_score_TS = None if is_pool_whole else score_TS
            step.report(f"layers.{self.layer}.index.scores", score_TS)
        elif self.uses_pool and step.selection.pool_score_TS is not None:
            self.indexer.restrict(plan, step.selection.pool_score_TS, entries.visible_T, score_TS)
            step.report(f"layers.{self.layer}.index.restricted", score_TS)
        entry_TL = torch.empty(
            (x_TD.shape[0], self.spec.top_entries), dtype=torch.int64, device=x_TD.device
        )
        self.indexer.select(plan, score_TS, entry_TL)
        step.report(f"layers.{self.layer}.index.selected", entry_TL)
        step.selection.slot_TL = entries.slots_of(entry_TL, self.codec)

    def _scores(
        self, plan: Plan, x_TD: torch.Tensor, latent_TK: torch.Tensor, step: StepContext
    ) -> torch.Tensor:
        entries = step.entries[self.ratio]
        query_THJ = self.query(latent_TK).view(-1, self.spec.heads, self.spec.width)
        query_THJ = self.rows.rotate_round_trip(query_THJ, step.compressed, self.index_format)
        score_TS = torch.empty(
            (x_TD.shape[0], entries.most_visible), dtype=self.rows.accumulate, device=x_TD.device
        )
        self.indexer.scores(
            plan,
            query_THJ,
            self.head_weight(x_TD),
            step.caches.index_keys(self.owner),
            entries.block_table_QB,
            entries.sequence_T,
            entries.visible_T,
            score_TS,
            rows_each=entries.rows_each,
        )
        return score_TS
