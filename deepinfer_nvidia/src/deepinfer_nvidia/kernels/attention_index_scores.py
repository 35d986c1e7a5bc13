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

The rows of a block are cut into runs of one sequence, which share the widened keys. What the next
tile needs is asked for one tile ahead.

Whatever is not MXFP4 keys and bf16 queries is ``attention_index_scores_wide``'s.
"""

from dataclasses import dataclass
from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.cache import IndexScoresSpec

from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["Tuning", "build", "default_tuning", "launch_tunings"]

_THREADS = 128
_ENTRIES = 64
"""Entries of one matrix product of a warp group."""
PASS_CONFIGS = (("tl.disable_safe_memory_legalize", True), ("tl.disable_warp_specialized", True))
_PAIR_MAGNITUDES = 0x01C001C0
_PAIR_SIGNS = -0x7FFF8000  # 0x80008000 as int32


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(KernelTuning):
    """Tiles of the scores.

    Attributes:
        row_tile: rows of a block; a multiple of the next.
        joined_rows: rows of one matrix product.
        steps: tiles of 64 entries of a block.
        blocks_per_sm: blocks that must fit on a multiprocessor at once; 0 lets the compiler choose.
    """

    pass_configs: tuple[tuple[str, bool | int | str], ...] = PASS_CONFIGS
    row_tile: int = 1
    joined_rows: int = 1
    steps: int = 8
    blocks_per_sm: int = 0


def default_tuning(spec: IndexScoresSpec) -> Tuning:
    """For rows of many sequences; launch code takes measured ones."""
    return Tuning()


def launch_tunings(_spec: IndexScoresSpec) -> tuple[Tuning, ...]:
    """Of long prompts; fewer steps, so that short ones have several blocks of several steps."""
    return (
        Tuning(row_tile=4, joined_rows=2, steps=2),
        Tuning(row_tile=3, joined_rows=3, steps=1),
    )


def build(spec: IndexScoresSpec, tuning: Tuning) -> Any:
    """MXFP4 keys, bf16 queries."""
    rows, page_count, entries = T.dynamic("rows"), T.dynamic("pages"), T.dynamic("entries")
    sequences, table_blocks = T.dynamic("sequences"), T.dynamic("table_blocks")
    pages, heads, width = spec.pages, spec.heads, spec.pages.width
    padded_heads = -(-heads // 8) * 8
    quarter, lane_words, words_a_row = width // 4, width // 32, width // 8
    row_tile, steps, size = tuning.row_tile, tuning.steps, pages.rows_per_page
    joined = tuning.joined_rows

    def column(word: Any, number: Any, lane: Any) -> Any:
        """Which pair of the product's columns holds codes ``number`` and four behind of a word."""
        return (2 * word + number // 2) * 8 + number % 2 * 4 + lane

    def moved(word: Any, bits: int) -> Any:
        return word << bits if bits >= 0 else word >> -bits

    is_one_page = size % _ENTRIES == 0

    def page_of(table: Any, sequence: Any, entry: Any) -> Any:
        return T.max(table[sequence, T.min(entry // size, table_blocks - 1)], 0)

    @T.macro
    def plan_runs(
        sequence_T: T.Tensor,
        visible_T: T.Tensor,
        tile: T.int32,
        sequence: T.SharedBuffer,
        visible: T.SharedBuffer,
        run: T.SharedBuffer,
        state: T.SharedBuffer,
    ) -> None:
        """Rows of one sequence: where they start and end, and the most that one of them sees."""
        thread = T.get_thread_binding()
        count = T.alloc_var("int32")
        if thread < row_tile:
            sequence[thread] = -1
            visible[thread] = 0
            if tile * row_tile + thread < rows:
                sequence[thread] = T.cast(sequence_T[tile * row_tile + thread], "int32")
                visible[thread] = T.cast(visible_T[tile * row_tile + thread], "int32")
        T.sync_threads()
        if thread == 0:
            count = 0
            for r in T.serial(row_tile):
                if sequence[r] >= 0:
                    if r == 0 or sequence[r] != sequence[T.max(r - 1, 0)]:
                        run[count, 0] = r
                        run[count, 2] = 0
                        count += 1
                    run[count - 1, 1] = r + 1
                    run[count - 1, 2] = T.max(run[count - 1, 2], visible[r])
            state[0] = count
        T.sync_threads()

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
            for i, lane, k in T.Parallel(_ENTRIES, 4, lane_words):
                words[i, lane, k] = data_PRX[page, base % size + i, lane * lane_words + k]
            for i, lane in T.Parallel(_ENTRIES, 4):
                scales[i, lane] = scale_PRG[page, base % size + i, lane * quarter // 32]
        else:
            for i, lane, k in T.Parallel(_ENTRIES, 4, lane_words):
                words[i, lane, k] = data_PRX[
                    page_of(table, sequence, base + i), (base + i) % size, lane * lane_words + k
                ]
            for i, lane in T.Parallel(_ENTRIES, 4):
                scales[i, lane] = scale_PRG[
                    page_of(table, sequence, base + i), (base + i) % size, lane * quarter // 32
                ]

    @T.macro
    def widen(words: T.FragmentBuffer, scales: T.FragmentBuffer, keys: T.FragmentBuffer) -> None:
        """From bytes to bf16."""
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

    @T.macro
    def stage(query_THJ: T.Tensor, tile: T.int32, query: T.SharedBuffer) -> None:
        """Bring the queries of all rows into the order of the keys' channels."""
        eight = T.alloc_local((8,), "bfloat16")
        turned = T.alloc_local((8,), "bfloat16")
        for turn in T.serial(T.ceildiv(row_tile * heads * words_a_row, _THREADS)):
            # Eight channels of a query: one word of a lane.
            item = turn * _THREADS + T.get_thread_binding()
            head = item // words_a_row
            if head < row_tile * heads:
                # Products of several rows also read those behind the last one.
                for j in T.vectorized(8):
                    eight[j] = T.bfloat16(0)
                if tile * row_tile + head // heads < rows:
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
                            column(item % lane_words, number, item % words_a_row // lane_words) * 2
                            + e,
                        ] = turned[2 * number + e]
        if padded_heads > heads:
            for r, h, j in T.Parallel(row_tile, padded_heads - heads, width):
                query[r * padded_heads + heads + h, j] = T.bfloat16(0)

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
            T.ceildiv(entries, _ENTRIES * steps), T.ceildiv(rows, row_tile), threads=_THREADS
        ) as (chunk, tile):
            if tuning.blocks_per_sm:
                T.annotate_min_blocks_per_sm(tuning.blocks_per_sm)
            query = T.alloc_shared((row_tile * padded_heads, width), "bfloat16")
            weight = T.alloc_shared((row_tile, padded_heads), "float32")
            sequence = T.alloc_shared((row_tile,), "int32")
            visible = T.alloc_shared((row_tile,), "int32")
            run = T.alloc_shared((row_tile, 3), "int32")
            state = T.alloc_shared((1,), "int32")
            words = T.alloc_fragment((_ENTRIES, 4, lane_words), "int32")
            ahead = T.alloc_fragment((_ENTRIES, 4, lane_words), "int32")
            scales = T.alloc_fragment((_ENTRIES, 4), "uint8")
            ahead_scales = T.alloc_fragment((_ENTRIES, 4), "uint8")
            keys = T.alloc_fragment((_ENTRIES, width), "bfloat16")
            dots = T.alloc_fragment((_ENTRIES, joined * padded_heads), "float32")
            score = T.alloc_fragment((_ENTRIES, joined), "float32")
            total = T.alloc_var("int32")
            base = T.alloc_var("int32")
            now = T.alloc_var("int32")
            later = T.alloc_var("int32")
            first = T.alloc_var("int32")
            end = T.alloc_var("int32")
            most = T.alloc_var("int32")
            start = chunk * (steps * _ENTRIES)
            plan_runs(sequence_T, visible_T, tile, sequence, visible, run, state)
            total = state[0] * steps
            if start < run[0, 2]:
                take(data_PRX, scale_PRG, block_table_QB, sequence[0], start, ahead, ahead_scales)
            stage(query_THJ, tile, query)
            for r, h in T.Parallel(row_tile, padded_heads):
                weight[r, h] = T.if_then_else(
                    tile * row_tile + r < rows and h < heads,
                    T.cast(weight_TH[tile * row_tile + r, h], "float32"),
                    0.0,
                )
            for turn in T.serial(total):
                now = turn // steps
                first = run[now, 0]
                end = run[now, 1]
                most = run[now, 2]
                base = start + turn % steps * _ENTRIES
                if base < most:
                    T.copy(ahead, words)
                    T.copy(ahead_scales, scales)
                if turn + 1 < total:
                    later = (turn + 1) // steps
                    if start + (turn + 1) % steps * _ENTRIES < run[later, 2]:
                        take(
                            data_PRX,
                            scale_PRG,
                            block_table_QB,
                            sequence[run[later, 0]],
                            start + (turn + 1) % steps * _ENTRIES,
                            ahead,
                            ahead_scales,
                        )
                if base < most:
                    widen(words, scales, keys)
                    for group in T.serial(first // joined, T.ceildiv(end, joined)):
                        T.gemm(
                            keys,
                            query[
                                group * (joined * padded_heads) : (group + 1)
                                * (joined * padded_heads),
                                :,
                            ],
                            dots,
                            transpose_B=True,
                            clear_accum=True,
                            policy=T.GemmWarpPolicy.FullRow,
                        )
                        sums = T.alloc_reducer((_ENTRIES, joined), "float32", op="sum")
                        T.reducer_init(sums)
                        for i, p, h in T.Parallel(_ENTRIES, joined, padded_heads):
                            T.reducer_update(
                                sums[i, p],
                                T.max(dots[i, p * padded_heads + h], 0.0)
                                * weight[group * joined + p, h],
                            )
                        T.finalize_reducer(sums, score)
                        for i, p in T.Parallel(_ENTRIES, joined):
                            if (
                                base + i < entries
                                and group * joined + p >= first
                                and group * joined + p < end
                            ):
                                score_TS[tile * row_tile + group * joined + p, base + i] = (
                                    T.if_then_else(
                                        base + i < visible[group * joined + p],
                                        score[i, p],
                                        -T.infinity("float32"),
                                    )
                                )
                else:
                    for r in T.serial(first, end):
                        for i in T.Parallel(_ENTRIES):
                            if base + i < entries:
                                score_TS[tile * row_tile + r, base + i] = -T.infinity("float32")

    return attention_index_scores
