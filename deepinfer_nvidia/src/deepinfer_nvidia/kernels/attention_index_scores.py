"""Score compressed entries. Twin: ``deepinfer_core.reference.indexer``, ``scores``.

A block scores some entries for some consecutive rows. Keys stay in registers, in an order of
channels that queries are turned into (``index_keys``). Products are summed in fp32, channels in a
fixed order; heads are summed in an order that only their number fixes. So a score's bits do not
depend on tiles.

The rows of a block are cut into runs of one sequence, which share the widened keys. What the next
tile needs is asked for one tile ahead.

Whatever is not MXFP4 keys and bf16 queries is ``attention_index_scores_wide``'s.
"""

from dataclasses import dataclass
from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.cache import IndexScoresSpec

from deepinfer_nvidia.kernels.compiler_switches import NO_BOUNDS_CHECKS, NO_WARP_SPLIT
from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.index_keys import ENTRIES, column, key_taker, key_widener
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["Tuning", "build", "default_tuning", "launch_tunings"]

_THREADS = 128
_SWITCHES = (*NO_BOUNDS_CHECKS, *NO_WARP_SPLIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(KernelTuning):
    """Tiles of the scores.

    Attributes:
        row_tile: rows of a block; a multiple of the next.
        joined_rows: rows of one matrix product.
        steps: tiles of 64 entries of a block.
        blocks_per_sm: blocks that must fit on a multiprocessor at once; 0 lets the compiler choose.
    """

    pass_configs: tuple[tuple[str, bool | int | str], ...] = _SWITCHES
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
    lane_words, words_a_row = width // 32, width // 8
    take, widen = key_taker(spec, table_blocks), key_widener(width)
    row_tile, steps, size = tuning.row_tile, tuning.steps, pages.rows_per_page
    joined = tuning.joined_rows

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
        before = T.alloc_var("int32")
        if thread < row_tile:
            sequence[thread] = -1
            visible[thread] = 0
            if tile * row_tile + thread < rows:
                sequence[thread] = T.cast(sequence_T[tile * row_tile + thread], "int32")
                visible[thread] = T.cast(visible_T[tile * row_tile + thread], "int32")
        T.sync_threads()
        if thread == 0:
            count = 0
            before = -1
            for r in T.serial(row_tile):
                if sequence[r] >= 0:
                    if sequence[r] != before:
                        run[count, 0] = r
                        run[count, 2] = 0
                        count += 1
                    run[count - 1, 1] = r + 1
                    run[count - 1, 2] = T.max(run[count - 1, 2], visible[r])
                before = sequence[r]
            state[0] = count
        T.sync_threads()

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
            T.ceildiv(entries, ENTRIES * steps), T.ceildiv(rows, row_tile), threads=_THREADS
        ) as (chunk, tile):
            let_next_start(rows)
            T.pdl_sync()
            if tuning.blocks_per_sm:
                T.annotate_min_blocks_per_sm(tuning.blocks_per_sm)
            query = T.alloc_shared((row_tile * padded_heads, width), "bfloat16")
            weight = T.alloc_shared((row_tile, padded_heads), "float32")
            sequence = T.alloc_shared((row_tile,), "int32")
            visible = T.alloc_shared((row_tile,), "int32")
            run = T.alloc_shared((row_tile, 3), "int32")
            state = T.alloc_shared((1,), "int32")
            words = T.alloc_fragment((ENTRIES, 4, lane_words), "int32")
            ahead = T.alloc_fragment((ENTRIES, 4, lane_words), "int32")
            scales = T.alloc_fragment((ENTRIES, 4), "uint8")
            ahead_scales = T.alloc_fragment((ENTRIES, 4), "uint8")
            keys = T.alloc_fragment((ENTRIES, width), "bfloat16")
            dots = T.alloc_fragment((ENTRIES, joined * padded_heads), "float32")
            score = T.alloc_fragment((ENTRIES, joined), "float32")
            total = T.alloc_var("int32")
            base = T.alloc_var("int32")
            now = T.alloc_var("int32")
            later = T.alloc_var("int32")
            first = T.alloc_var("int32")
            end = T.alloc_var("int32")
            most = T.alloc_var("int32")
            start = chunk * (steps * ENTRIES)
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
                base = start + turn % steps * ENTRIES
                if base < most:
                    T.copy(ahead, words)
                    T.copy(ahead_scales, scales)
                if turn + 1 < total:
                    later = (turn + 1) // steps
                    if start + (turn + 1) % steps * ENTRIES < run[later, 2]:
                        take(
                            data_PRX,
                            scale_PRG,
                            block_table_QB,
                            sequence[run[later, 0]],
                            start + (turn + 1) % steps * ENTRIES,
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
                        sums = T.alloc_reducer((ENTRIES, joined), "float32", op="sum")
                        T.reducer_init(sums)
                        for i, p, h in T.Parallel(ENTRIES, joined, padded_heads):
                            T.reducer_update(
                                sums[i, p],
                                T.max(dots[i, p * padded_heads + h], 0.0)
                                * weight[group * joined + p, h],
                            )
                        T.finalize_reducer(sums, score)
                        for i, p in T.Parallel(ENTRIES, joined):
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
                        for i in T.Parallel(ENTRIES):
                            if base + i < entries:
                                score_TS[tile * row_tile + r, base + i] = -T.infinity("float32")

    return attention_index_scores
