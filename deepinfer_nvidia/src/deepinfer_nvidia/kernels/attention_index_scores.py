"""Score compressed entries. Twin: ``deepinfer_core.reference.indexer``, ``scores``.

A block scores some entries for some consecutive rows. Keys are the rows of the matrix product, so
that they stay in registers: a thread widens the channels that it multiplies, straight from the
bytes in memory. The order of channels is free as long as queries have the same: four threads share
a key, and each takes a quarter of its channels. Two codes that are multiplied together lie four
apart in a word, so that two masks place both.

An MXFP4 value is a multiple of a power of two, so that bf16 holds it exactly. The bits of a code
read as bf16 are the value times 2^-126; two multiplications, which keep every scale exact, give the
key. Products are summed in fp32, channels in a fixed order; heads are summed in an order that only
their number fixes. So a score's bits do not depend on tiles.

Rows of one sequence share the widened keys. Whether the next row is of the same sequence, and
whether it sees the entries at all, is the same for the whole block.

Whatever is not MXFP4 keys and bf16 queries is ``attention_index_scores_wide``'s.
"""

from dataclasses import dataclass
from typing import Any

import tilelang.language as T

from deepinfer_core.interfaces.operators.cache import IndexScoresSpec
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["Tuning", "build", "default_tuning"]

_ENTRIES = 64
"""Entries of one matrix product of a warp group."""
PASS_CONFIGS = (("tl.disable_safe_memory_legalize", True), ("tl.disable_warp_specialized", True))
_PAIR_MAGNITUDES = 0x01C001C0
_PAIR_SIGNS = -0x7FFF8000  # 0x80008000 as int32


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(KernelTuning):
    """Tiles of the scores.

    Attributes:
        row_tile: rows of a block.
        steps: tiles of 64 entries of a block.
    """

    row_tile: int = 1
    steps: int = 8


def default_tuning(spec: IndexScoresSpec) -> Tuning:
    """For rows of many sequences; launch code chooses the row tile of long prompts."""
    return Tuning(pass_configs=PASS_CONFIGS)


def build(spec: IndexScoresSpec, tuning: Tuning) -> Any:
    """MXFP4 keys, bf16 queries."""
    rows, page_count, entries = T.dynamic("rows"), T.dynamic("pages"), T.dynamic("entries")
    sequences, table_blocks = T.dynamic("sequences"), T.dynamic("table_blocks")
    pages, heads, width = spec.pages, spec.heads, spec.pages.width
    padded_heads = -(-heads // 8) * 8
    quarter, lane_words, words_a_row = width // 4, width // 32, width // 8
    row_tile, steps, size = tuning.row_tile, tuning.steps, pages.rows_per_page

    def column(word: Any, number: Any, lane: Any) -> Any:
        """Which pair of the product's columns holds codes ``number`` and four behind of a word."""
        return (2 * word + number // 2) * 8 + number % 2 * 4 + lane

    def moved(word: Any, bits: int) -> Any:
        return word << bits if bits >= 0 else word >> -bits

    def page_of(table: Any, sequence: Any, base: Any, entry: Any) -> Any:
        # A whole tile lies in one page if pages are large enough.
        inside = base if size % _ENTRIES == 0 else base + entry
        return T.max(table[sequence, T.min(inside // size, table_blocks - 1)], 0)

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
        for i, lane, k in T.Parallel(_ENTRIES, 4, lane_words):
            words[i, lane, k] = data_PRX[
                page_of(table, sequence, base, i), (base + i) % size, lane * lane_words + k
            ]
        for i, lane in T.Parallel(_ENTRIES, 4):
            scales[i, lane] = scale_PRG[
                page_of(table, sequence, base, i), (base + i) % size, lane * quarter // 32
            ]

    @T.macro
    def widen(words: T.FragmentBuffer, scales: T.FragmentBuffer, keys: T.FragmentBuffer) -> None:
        # Looked at as bf16 here, never as an operand: products take other addresses in a view.
        pairs = T.alloc_fragment((_ENTRIES, width // 2), "int32")
        T.annotate_layout(
            {
                pairs: T.Fragment(
                    (_ENTRIES, width // 2),
                    forward_thread_fn=lambda i, p: i // 16 * 32 + i % 8 * 4 + p % 4,
                    forward_index_fn=lambda i, p: p // 4 * 2 + i % 16 // 8,
                )
            }
        )
        raw = T.view(pairs, (_ENTRIES, width), "bfloat16")
        factor = T.alloc_fragment((_ENTRIES, 4), "bfloat16")
        for i, lane in T.Parallel(_ENTRIES, 4):
            byte = T.cast(scales[i, lane], "int32")
            # The bits of 2^(byte - 127); byte 0 is a subnormal number.
            bits = T.if_then_else(byte == 0, 64, byte << 7)
            bits_or_nan = T.if_then_else(byte == 255, 0x7FC0, bits)
            factor[i, lane] = T.reinterpret(T.cast(bits_or_nan, "uint16"), "bfloat16")
        for number in (0, 1, 2, 3):
            for i, k, lane in T.Parallel(_ENTRIES, lane_words, 4):
                pairs[i, column(k, number, lane)] = (
                    moved(words[i, lane, k], 6 - 4 * number) & _PAIR_MAGNITUDES
                ) | (moved(words[i, lane, k], 12 - 4 * number) & T.int32(_PAIR_SIGNS))
        for i, k, number, lane, e in T.Parallel(_ENTRIES, lane_words, 4, 4, 2):
            keys[i, column(k, number, lane) * 2 + e] = (
                raw[i, column(k, number, lane) * 2 + e] * T.bfloat16(2.0**126) * factor[i, lane]
            )

    @T.prim_func
    def attention_index_scores(
        query_THJ: T.Tensor((rows, heads, width), "bfloat16"),
        weight_TH: T.Tensor((rows, heads), spec.weight_dtype),
        data_PRX: T.StridedTensor(
            (page_count, size, words_a_row), (*pages.data_strides, 1), "int32"
        ),
        scale_PRG: T.StridedTensor(
            (page_count, size, width // 32), (*pages.scale_strides, 1), "uint8"
        ),
        block_table_QB: T.Tensor((sequences, table_blocks), "int64"),
        sequence_T: T.Tensor((rows,), "int64"),
        visible_T: T.Tensor((rows,), "int64"),
        score_TS: T.Tensor((rows, entries), "float32"),
    ) -> None:
        with T.Kernel(
            T.ceildiv(entries, _ENTRIES * steps), T.ceildiv(rows, row_tile), threads=128
        ) as (chunk, tile):
            query = T.alloc_shared((row_tile * padded_heads, width), "bfloat16")
            weight = T.alloc_shared((row_tile, padded_heads), "float32")
            words = T.alloc_fragment((_ENTRIES, 4, lane_words), "int32")
            ahead = T.alloc_fragment((_ENTRIES, 4, lane_words), "int32")
            scales = T.alloc_fragment((_ENTRIES, 4), "uint8")
            ahead_scales = T.alloc_fragment((_ENTRIES, 4), "uint8")
            keys = T.alloc_fragment((_ENTRIES, width), "bfloat16")
            eight = T.alloc_local((8,), "bfloat16")
            turned = T.alloc_local((8,), "bfloat16")
            dots = T.alloc_fragment((_ENTRIES, padded_heads), "float32")
            score = T.alloc_fragment((_ENTRIES,), "float32")
            row = T.alloc_var("int32")
            visible = T.alloc_var("int32")
            most = T.alloc_var("int32")
            sequence = T.alloc_var("int32")
            held = T.alloc_var("int32")
            base = T.alloc_var("int32")
            # What the first row needs is asked for one step ahead.
            most = T.cast(visible_T[tile * row_tile], "int32")
            base = chunk * steps * _ENTRIES
            if base < most:
                take(
                    data_PRX,
                    scale_PRG,
                    block_table_QB,
                    T.cast(sequence_T[tile * row_tile], "int32"),
                    base,
                    ahead,
                    ahead_scales,
                )
            for turn in T.serial(T.ceildiv(row_tile * heads * words_a_row, 128)):
                # Eight channels of a query: one word of a lane.
                item = turn * 128 + T.get_thread_binding()
                head = item // words_a_row
                if head < row_tile * heads and tile * row_tile + head // heads < rows:
                    for j in T.vectorized(8):
                        eight[j] = query_THJ[
                            tile * row_tile + head // heads,
                            head % heads,
                            item % words_a_row * 8 + j,
                        ]
                    for number in T.unroll(4):
                        for e in T.unroll(2):
                            turned[2 * number + e] = eight[number + 4 * e]
                    for number in T.unroll(4):
                        for e in T.vectorized(2):
                            query[
                                head // heads * padded_heads + head % heads,
                                column(item % lane_words, number, item % words_a_row // lane_words)
                                * 2
                                + e,
                            ] = turned[2 * number + e]
            if padded_heads > heads:
                for r, h, j in T.Parallel(row_tile, padded_heads - heads, width):
                    query[r * padded_heads + heads + h, j] = T.bfloat16(0)
            for r, h in T.Parallel(row_tile, padded_heads):
                weight[r, h] = T.if_then_else(
                    tile * row_tile + r < rows and h < heads,
                    T.cast(weight_TH[tile * row_tile + r, h], "float32"),
                    0.0,
                )
            for step in T.serial(steps):
                base = (chunk * steps + step) * _ENTRIES
                held = -1
                if base < most:
                    held = T.cast(sequence_T[tile * row_tile], "int32")
                    T.copy(ahead, words)
                    T.copy(ahead_scales, scales)
                    if step + 1 < steps and base + _ENTRIES < most:
                        take(
                            data_PRX,
                            scale_PRG,
                            block_table_QB,
                            held,
                            base + _ENTRIES,
                            ahead,
                            ahead_scales,
                        )
                    widen(words, scales, keys)
                for r in T.serial(row_tile):
                    row = tile * row_tile + r
                    if row < rows:
                        visible = T.cast(visible_T[row], "int32")
                        sequence = T.cast(sequence_T[row], "int32")
                        if base < visible:
                            if sequence != held:
                                held = sequence
                                take(
                                    data_PRX,
                                    scale_PRG,
                                    block_table_QB,
                                    sequence,
                                    base,
                                    words,
                                    scales,
                                )
                                widen(words, scales, keys)
                            T.gemm(
                                keys,
                                query[r * padded_heads : (r + 1) * padded_heads, :],
                                dots,
                                transpose_B=True,
                                clear_accum=True,
                                policy=T.GemmWarpPolicy.FullRow,
                            )
                            for i, h in T.Parallel(_ENTRIES, padded_heads):
                                dots[i, h] = T.max(dots[i, h], 0.0) * weight[r, h]
                            T.reduce_sum(dots, score, dim=1)
                            for i in T.Parallel(_ENTRIES):
                                if base + i < entries:
                                    score_TS[row, base + i] = T.if_then_else(
                                        base + i < visible, score[i], -T.infinity("float32")
                                    )
                        else:
                            for i in T.Parallel(_ENTRIES):
                                if base + i < entries:
                                    score_TS[row, base + i] = -T.infinity("float32")

    return attention_index_scores
