"""How do index keys come from their pages into the operand of a matrix product?

Keys are the rows of the product, so that they stay in registers: a thread widens the channels that
it multiplies, straight from the bytes in memory. The order of channels is free as long as queries
have the same: four threads share a key, and each takes a quarter of its channels. Two codes that
are multiplied together lie four apart in a word, so that two masks place both.

An MXFP4 value is a multiple of a power of two, so that bf16 holds it exactly. The bits of a code
read as bf16 are the value times 2^-126; two multiplications, which keep every scale exact, give the
key.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.cache import IndexScoresSpec

__all__ = ["ENTRIES", "column", "key_taker", "key_widener"]

ENTRIES = 64
"""Entries of one matrix product of a warp group."""

_PAIR_MAGNITUDES = 0x01C001C0
_PAIR_SIGNS = -0x7FFF8000  # 0x80008000 as int32


def column(word: Any, number: Any, lane: Any) -> Any:
    """Which pair of the product's columns holds codes ``number`` and four behind of a word."""
    return (2 * word + number // 2) * 8 + number % 2 * 4 + lane


def key_taker(spec: IndexScoresSpec, table_blocks: Any) -> Any:
    """The macro that asks for a tile's bytes; ``table_blocks`` is the length of block tables."""
    width, size = spec.pages.width, spec.pages.rows_per_page
    quarter, lane_words = width // 4, width // 32
    is_one_page = size % ENTRIES == 0

    def page_of(table: Any, sequence: Any, entry: Any) -> Any:
        return T.max(table[sequence, T.min(entry // size, table_blocks - 1)], 0)

    @T.macro
    def take(
        data_PRX: T.StridedTensor,
        scale_PRG: T.StridedTensor,
        table: T.Tensor,
        sequence: T.int32,
        base: T.int32,
        words: T.FragmentBuffer,
        scales: T.FragmentBuffer,
    ) -> None:
        """Ask for the bytes of a tile of keys, which lie in one page if pages are large enough."""
        page = T.alloc_var("int64")
        if is_one_page:
            page = page_of(table, sequence, base)
            for i, lane, k in T.Parallel(ENTRIES, 4, lane_words):
                words[i, lane, k] = data_PRX[page, base % size + i, lane * lane_words + k]
            for i, lane in T.Parallel(ENTRIES, 4):
                scales[i, lane] = scale_PRG[page, base % size + i, lane * quarter // 32]
        else:
            for i, lane, k in T.Parallel(ENTRIES, 4, lane_words):
                words[i, lane, k] = data_PRX[
                    page_of(table, sequence, base + i), (base + i) % size, lane * lane_words + k
                ]
            for i, lane in T.Parallel(ENTRIES, 4):
                scales[i, lane] = scale_PRG[
                    page_of(table, sequence, base + i), (base + i) % size, lane * quarter // 32
                ]

    return take


def key_widener(width: int) -> Any:
    """The macro that makes bf16 of a tile's bytes."""
    lane_words = width // 32

    def moved(word: Any, bits: int) -> Any:
        return word << bits if bits >= 0 else word >> -bits

    @T.macro
    def widen(words: T.FragmentBuffer, scales: T.FragmentBuffer, keys: T.FragmentBuffer) -> None:
        """From bytes to bf16."""
        # Looked at as bf16 here, never as an operand: products take other addresses in a view.
        pairs = T.alloc_fragment((ENTRIES, width // 2), "int32")
        T.annotate_layout(
            {
                pairs: T.Fragment(
                    (ENTRIES, width // 2),
                    forward_thread_fn=lambda i, p: i // 16 * 32 + i % 8 * 4 + p % 4,
                    forward_index_fn=lambda i, p: p // 4 * 2 + i % 16 // 8,
                )
            }
        )
        raw = T.view(pairs, (ENTRIES, width), "bfloat16")
        factor = T.alloc_fragment((ENTRIES, 4), "bfloat16")
        for i, lane in T.Parallel(ENTRIES, 4):
            byte = T.cast(scales[i, lane], "int32")
            # The bits of 2^(byte - 127); byte 0 is a subnormal number.
            bits = T.if_then_else(byte == 0, 64, byte << 7)
            bits_or_nan = T.if_then_else(byte == 255, 0x7FC0, bits)
            factor[i, lane] = T.reinterpret(T.cast(bits_or_nan, "uint16"), "bfloat16")
        for number in (0, 1, 2, 3):
            for i, k, lane in T.Parallel(ENTRIES, lane_words, 4):
                pairs[i, column(k, number, lane)] = (
                    moved(words[i, lane, k], 6 - 4 * number) & _PAIR_MAGNITUDES
                ) | (moved(words[i, lane, k], 12 - 4 * number) & T.int32(_PAIR_SIGNS))
        for i, k, number, lane, e in T.Parallel(ENTRIES, lane_words, 4, 4, 2):
            keys[i, column(k, number, lane) * 2 + e] = (
                raw[i, column(k, number, lane) * 2 + e] * T.bfloat16(2.0**126) * factor[i, lane]
            )

    return widen
