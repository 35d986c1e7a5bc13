"""Which kernels of sparse attention may be asked for? ``interfaces.attention`` says what they do.

One operator serves prompts and decoding, so that a row has the same bits in both. Its arguments:
q_TND; for each key source i data_i_PE, scale_i_PB and slot_i_TL; sink_N; out_TND; lse_TN.

``data_i_PE`` and ``scale_i_PB`` are two views of the same pages, the first in elements of the
format's data (bytes for packed formats), the second in bytes. Rows start at multiples of 16 bytes
where a row has a multiple of 16, and of the largest power of two that divides it otherwise.

Shapes: T rows, N heads, D width, L listed keys, P pages, E elements and B bytes of a page.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["KeySourceSpec", "SparseAttentionSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySourceSpec:
    """The keys of one source.

    Attributes:
        number_format: a format of ``deepinfer_core.numeric`` whose rows hold their own scales.
        list_capacity: L is at most this.
        rows_per_page: rows in a page; 0 if there is one page only, of any number of rows.
    """

    number_format: str
    list_capacity: int
    rows_per_page: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseAttentionSpec:
    """``SparseAttention.run``.

    Attributes:
        heads: N.
        head_width: D.
        sources: in the order of the lists.
        compute: dtype name of queries and outputs. The products are exact to fp32 unless queries
            and keys are all exact in bf16.
        scale: factor on ``q . k``.
    """

    heads: int
    head_width: int
    sources: tuple[KeySourceSpec, ...]
    compute: str
    scale: float
