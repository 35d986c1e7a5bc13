"""How does the model reach its caches and attend over them?

Four slots of one kind. ``cache_codec`` writes and reads rows in the cache formats, ``indexer``
scores and selects compressed entries, ``prefill`` and ``decode`` attend. A row sees keys from
several sources at once (its window, and the selected entries), each an index list into pages; one
sink term closes the softmax. There is no k and no v: one vector a token is both.

Shapes: T rows of a step, N query heads, D head width, L listed keys, P pages, B blocks of a
sequence, Q sequences of the step, S entries of a sequence, H index heads, J index width.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepinfer_core.interfaces.component import Component, Plan

if TYPE_CHECKING:
    import torch

    from deepinfer_core.interfaces.step_slots import SlotSizes, StepPlaces, StepSlots

__all__ = [
    "AttentionSpec",
    "CacheCodec",
    "CachePages",
    "Indexer",
    "IndexerSpec",
    "KeySource",
    "SparseAttention",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePages:
    """Rows of one format in pages of equal size: a pool of blocks, or rings of sequences.

    Row ``i`` of page ``p`` has slot ``p * rows_per_page + i``; slot -1 means: no such row.

    Attributes:
        data_PB: uint8 view [pages, bytes of this region]; dimension 0 may be strided.
        rows_per_page: rows in a page.
        width: channels of a row.
        number_format: a format of ``deepinfer_core.numeric``.
        scales_apart: all data of the page first, then all scales (index keys); otherwise each row
            holds its data followed by its scales.
    """

    data_PB: torch.Tensor
    rows_per_page: int
    width: int
    number_format: str
    scales_apart: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySource:
    """The keys that rows see in one set of pages.

    Attributes:
        pages: where they are.
        slot_TL: int64 slots, -1 for none, at any place in the list.
    """

    pages: CachePages
    slot_TL: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSpec:
    """What one attention call looks like.

    Attributes:
        heads: N.
        head_width: D.
        list_lengths: L of each key source, in order.
        compute: dtype name of queries and outputs.
    """

    heads: int
    head_width: int
    list_lengths: tuple[int, ...]
    compute: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexerSpec:
    """What one scoring and selection looks like.

    Attributes:
        heads: H.
        width: J.
        top_entries: entries kept a row.
        block_entries: entries in a candidate block.
        top_blocks: candidate blocks kept a row.
    """

    heads: int
    width: int
    top_entries: int
    block_entries: int
    top_blocks: int


class CacheCodec(Component):
    """Writing and reading cache rows, and the pairwise compressor."""

    @abstractmethod
    def row_bytes(self, number_format: str, width: int) -> int:
        """Bytes of one row, data and scales.

        Raises:
            NotSupported: the format, or the width in it.
        """

    @abstractmethod
    def store(self, x_TD: torch.Tensor, slot_T: torch.Tensor, pages: CachePages) -> None:
        """Encode rows into their slots; slot -1 skips a row. Slots of one call are distinct."""

    @abstractmethod
    def load(self, pages: CachePages, slot_T: torch.Tensor, out_TD: torch.Tensor) -> None:
        """Decode rows; slot -1 gives zeros."""

    def entry_slots(
        self,
        entry_TL: torch.Tensor,
        block_table_QB: torch.Tensor,
        sequence_T: torch.Tensor,
        entries_per_block: int,
        slot_TL: torch.Tensor,
    ) -> None:
        """Find the slots of listed entries; what does it in one pass replaces this.

        Args:
            entry_TL: int64 entries of each row's sequence, ascending, [T, L]; -1 for none.
            block_table_QB: int64 blocks of each sequence, [Q, B].
            sequence_T: int64 sequence of each row.
            entries_per_block: rows of a page.
            slot_TL: int64 out, -1 for none.
        """
        # What -1 looks up, the last block, is masked in the end.
        block_TL = entry_TL // entries_per_block
        page_TL = block_table_QB[sequence_T[:, None], block_TL]
        found_TL = entry_TL.add(page_TL - block_TL, alpha=entries_per_block)
        slot_TL.copy_(found_TL.masked_fill_(entry_TL < 0, -1))

    def step_slots(self, places: StepPlaces, sizes: SlotSizes) -> StepSlots | None:
        """Work out all slots of a decode step in one pass; None: whoever asks does it.

        What returns slots at all returns them for every step of these sizes, in new memory.
        """
        return None

    @abstractmethod
    def compress_pairs(
        self,
        value_TD: torch.Tensor,
        gate_TD: torch.Tensor,
        slot_T: torch.Tensor,
        partner_slot_T: torch.Tensor,
        partner_row_T: torch.Tensor,
        state: CachePages,
        latent_TD: torch.Tensor,
    ) -> None:
        """Blend each row with its group's first token, and remember the raw inputs.

        Rows at odd positions complete a group; those of rows at even positions are unspecified.

        Args:
            value_TD: accumulation dtype, raw values.
            gate_TD: accumulation dtype, raw gates.
            slot_T: slot in ``state`` where the row's own gate and value are kept; -1 skips.
            partner_slot_T: slot of the previous position's row in ``state``; read before any write.
            partner_row_T: row of this call that is the previous position; -1: take ``state``'s.
            state: plain pages of width 2 * D: gate, then value.
            latent_TD: out, compute dtype.
        """


class Indexer(Component):
    """Scores of compressed entries and the choice among them. Ties go to the lower index."""

    @abstractmethod
    def plan_index(self, spec: IndexerSpec, max_rows: int) -> Plan:
        """Prepare for at most ``max_rows`` rows; its own name lets one object attend too."""

    @abstractmethod
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
        """``score = sum over heads of weight * relu(query . key)``; -inf where not visible.

        Args:
            plan: from ``plan_index``.
            query_THJ: already rounded to the index format.
            weight_TH: signed head weights.
            keys: index keys in pages of blocks.
            block_table_QB: int64 page of each block of each sequence, -1 behind the end.
            sequence_T: int64, row of ``block_table_QB`` of each row.
            visible_T: int64, entries that exist for each row: 0 up to it, exclusive.
            score_TS: accumulation dtype out; S at least the largest ``visible_T``.
            rows_each: about how many adjacent rows belong to one sequence: a hint for tiles, on
                which no bit depends.
        """

    @abstractmethod
    def select(self, plan: Plan, score_TS: torch.Tensor, index_TL: torch.Tensor) -> None:
        """Keep the best ``top_entries`` entries above -inf: ascending int64, padded with -1."""

    @abstractmethod
    def restrict(
        self,
        plan: Plan,
        pool_score_TS: torch.Tensor,
        visible_T: torch.Tensor,
        score_TS: torch.Tensor,
    ) -> None:
        """Set ``score_TS`` to -inf outside the candidate pool of ``pool_score_TS``.

        The pool is the best ``top_blocks`` blocks of ``block_entries`` entries, by their largest
        visible score; the block with the last visible entry always belongs to it.
        """


class SparseAttention(Component):
    """Attention of each row over its listed keys; serves the slots ``prefill`` and ``decode``."""

    @abstractmethod
    def plan(self, spec: AttentionSpec, max_rows: int) -> Plan:
        """Prepare for at most ``max_rows`` rows; also fixes how keys are split, for invariance."""

    @abstractmethod
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
        """Attend; key and value are one vector.

        Args:
            plan: from ``plan``.
            q_TND: rotated queries.
            sources: as many as the spec has list lengths; keys of all count as one set.
            sink_N: fp32, one more logit a head, unscaled, with a zero value.
            scale: factor on ``q . k``.
            out_TND: out, compute dtype. A row without keys gives zeros.
            lse_TN: accumulation dtype out, natural log of the sum over keys, without the sink;
                +inf for a row without keys.
        """
