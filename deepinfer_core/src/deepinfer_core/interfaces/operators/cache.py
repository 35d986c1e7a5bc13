"""Which kernels around caches may be asked for? ``interfaces.attention`` says what they compute.

Rows of a cache have two parts, data and scales, which are two arguments: strided views of the same
pages, so that it makes no difference to a kernel whether the scales of a row follow its data or lie
apart. Slots and indices are int64 and may be -1; scores are fp32.

Shapes: T rows, D width, P pages, R rows of a page, X stored elements of a row, G scales of a row,
H index heads, J index width, S entries, Q sequences, B blocks of a sequence, L kept entries.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "CandidateBlocksSpec",
    "CompressPairsSpec",
    "EntrySlotsSpec",
    "IndexScoresSpec",
    "RowPagesSpec",
    "RowsSpec",
    "SelectTopSpec",
    "StepSlotsSpec",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPagesSpec:
    """Cache pages as kernels see them.

    Attributes:
        number_format: ``mxfp8``, ``mxfp4``, ``fp4_e4m3x16``, ``bfloat16`` or ``float32``.
        width: channels of a row.
        rows_per_page: R.
        data_strides: stored elements from page to page, and from row to row.
        scale_strides: the same of scales, in bytes; zeros for plain formats.
        alignment_bytes: power of two, at most 16, that divides the address of every page's data and
            the distances between them.
    """

    number_format: str
    width: int
    rows_per_page: int
    data_strides: tuple[int, int]
    scale_strides: tuple[int, int] = (0, 0)
    alignment_bytes: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsSpec:
    """``CacheCodec.store`` and ``load``.

    Arguments of ``attention_store_rows``: x_TD, slot_T, and out data_PRX, scale_PRG. Arguments of
    ``attention_load_rows``: data_PRX, scale_PRG, slot_T, and out out_TD. Plain formats have no
    scale_PRG.

    Attributes:
        pages: where rows are kept.
        dtype: name of the dtype of rows outside the cache.
    """

    pages: RowPagesSpec
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressPairsSpec:
    """``CacheCodec.compress_pairs`` in two steps, because every row must read before any writes.

    Arguments of ``attention_compress_pairs``: value_TD, gate_TD, partner_slot_T, partner_row_T,
    state_PRX, and out latent_TD. Arguments of ``attention_keep_pairs``: value_TD, gate_TD, slot_T,
    and out state_PRX.

    Attributes:
        width: D; rows of the state have a gate and then a value, 2 * D channels in fp32.
        rows_per_page: R.
        state_strides: elements from page to page, and from row to row.
        dtype: name of the dtype of latents.
        alignment_bytes: as in ``RowPagesSpec``.
    """

    width: int
    rows_per_page: int
    state_strides: tuple[int, int]
    dtype: str
    alignment_bytes: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySlotsSpec:
    """``CacheCodec.entry_slots``.

    Arguments entry_TL, block_table_QB, sequence_T, and out slot_TL, all int64.

    Attributes:
        entries_per_block: rows of a page.
    """

    entries_per_block: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexScoresSpec:
    """``Indexer.scores``.

    Arguments: query_THJ, weight_TH, data_PRX, scale_PRG (not for plain keys), block_table_QB,
    sequence_T, visible_T, and out score_TS.

    Attributes:
        heads: H.
        pages: index keys; their width is J.
        dtype: name of the dtype of queries.
        weight_dtype: name of the dtype of head weights.
    """

    heads: int
    pages: RowPagesSpec
    dtype: str
    weight_dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectTopSpec:
    """``Indexer.select``; arguments score_TS, and out index_TL.

    Attributes:
        top_entries: L.
    """

    top_entries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateBlocksSpec:
    """``Indexer.restrict``; arguments pool_score_TS, visible_T, and in and out score_TS.

    Attributes:
        block_entries: entries in a candidate block.
        top_blocks: blocks kept.
    """

    block_entries: int
    top_blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSlotsSpec:
    """``CacheCodec.step_slots``; all int64.

    Arguments position_T, sequence_T, state_slot_Q, start_Q, row_count_Q, valid_start_Q,
    cached_end_Q, block_table_QB, and out slot_TW, the window, and number_NT [4 + 2 * ratios, T]:
    write, pair, partner, partner_row, and, ratio after ratio, visible and slot. The fields mean
    what they mean in ``SlotSizes``.
    """

    window: int
    ring_tokens: int
    pair_tokens: int
    block_tokens: int
    ratios: tuple[int, ...]
