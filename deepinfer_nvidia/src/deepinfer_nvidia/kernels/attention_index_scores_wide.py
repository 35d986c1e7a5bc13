"""Score entries without tensor cores. Twin: ``deepinfer_core.reference.indexer``, ``scores``.

For fp32 queries, and for keys that are kept as they are: everything in fp32, a thread an entry, all
sums in the order of their terms. It serves exact comparisons, not speed.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.cache import IndexScoresSpec

from deepinfer_nvidia.kernels import number_codes as codes
from deepinfer_nvidia.kernels.compiler_switches import NO_BOUNDS_CHECKS
from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["build", "default_tuning"]


def default_tuning(spec: IndexScoresSpec) -> KernelTuning:
    """An entry a thread."""
    return KernelTuning(threads=128, pass_configs=NO_BOUNDS_CHECKS)


def build(spec: IndexScoresSpec, tuning: KernelTuning) -> Any:
    """Keys in MXFP4 or in a plain format."""
    rows, page_count, entries = T.dynamic("rows"), T.dynamic("pages"), T.dynamic("entries")
    sequences, table_blocks = T.dynamic("sequences"), T.dynamic("table_blocks")
    pages, heads, width = spec.pages, spec.heads, spec.pages.width
    is_packed = pages.number_format == "mxfp4"
    score = _scorer(spec, tuning, _widen_codes if is_packed else _widen_values)
    query = T.Tensor((rows, heads, width), spec.dtype)
    weight = T.Tensor((rows, heads), spec.weight_dtype)
    table = T.Tensor((sequences, table_blocks), "int64")
    # Every argument needs a buffer of its own: two names for one would be one argument.
    sequence, visible = (T.Tensor((rows,), "int64") for _ in range(2))
    scores = T.Tensor((rows, entries), "float32")

    def over_packed_keys() -> Any:
        @T.prim_func
        def attention_index_scores_wide(
            query_THJ: query,
            weight_TH: weight,
            data_PRX: T.StridedTensor(
                (page_count, pages.rows_per_page, width // 8), (*pages.data_strides, 1), "int32"
            ),
            scale_PRG: T.StridedTensor(
                (page_count, pages.rows_per_page, width // 32), (*pages.scale_strides, 1), "uint8"
            ),
            block_table_QB: table,
            sequence_T: sequence,
            visible_T: visible,
            score_TS: scores,
        ) -> None:
            places = (block_table_QB, sequence_T, visible_T)
            score(query_THJ, weight_TH, (data_PRX, scale_PRG), places, score_TS)

        return attention_index_scores_wide

    def over_plain_keys() -> Any:
        @T.prim_func
        def attention_index_scores_wide(
            query_THJ: query,
            weight_TH: weight,
            data_PRX: T.StridedTensor(
                (page_count, pages.rows_per_page, width),
                (*pages.data_strides, 1),
                pages.number_format,
            ),
            block_table_QB: table,
            sequence_T: sequence,
            visible_T: visible,
            score_TS: scores,
        ) -> None:
            places = (block_table_QB, sequence_T, visible_T)
            score(query_THJ, weight_TH, (data_PRX,), places, score_TS)

        return attention_index_scores_wide

    return over_packed_keys() if is_packed else over_plain_keys()


@T.macro
def _stage(query_THJ: Any, weight_TH: Any, row: Any, query: Any, weight: Any) -> None:
    for h, j in T.Parallel(query.shape[0], query.shape[1]):
        query[h, j] = T.cast(query_THJ[row, h, j], "float32")
    for h in T.Parallel(query.shape[0]):
        weight[h] = T.cast(weight_TH[row, h], "float32")
    T.sync_threads()


@T.macro
def _finish(query: Any, weight: Any, key: Any, score_TS: Any, row: Any, entry: Any) -> None:
    total = T.alloc_var("float32")
    dot = T.alloc_var("float32")
    total = 0.0
    for h in T.serial(query.shape[0]):
        dot = 0.0
        for j in T.unroll(query.shape[1]):
            dot += query[h, j] * key[j]
        total += T.max(dot, 0.0) * weight[h]
    score_TS[row, entry] = total


@T.macro
def _widen_values(keys: Any, page: Any, line: Any, key: Any) -> None:
    for j in T.unroll(key.shape[0]):
        key[j] = T.cast(keys[0][page, line, j], "float32")


@T.macro
def _widen_codes(keys: Any, page: Any, line: Any, key: Any) -> None:
    for g in T.unroll(key.shape[0] // 32):
        byte = T.cast(keys[1][page, line, g], "int32")
        for k in T.unroll(4):
            word = keys[0][page, line, g * 4 + k]
            for n in T.unroll(8):
                key[g * 32 + k * 8 + n] = codes.e2m1_value(
                    (word >> (4 * n)) & 15
                ) * codes.value_of_byte(byte)


def _scorer(spec: IndexScoresSpec, tuning: KernelTuning, widen: Any) -> Any:
    """All of it; keys are values, or codes and scales."""
    heads, width, size = spec.heads, spec.pages.width, spec.pages.rows_per_page
    threads = tuning.threads

    @T.macro
    def score(query_THJ: Any, weight_TH: Any, keys: Any, places: Any, score_TS: Any) -> None:
        rows, entries = score_TS.shape
        with T.Kernel(T.ceildiv(entries, threads), rows, threads=threads) as (chunk, row):
            let_next_start(rows)
            T.pdl_sync()
            query = T.alloc_shared((heads, width), "float32")
            weight = T.alloc_shared((heads,), "float32")
            key = T.alloc_local((width,), "float32")
            _stage(query_THJ, weight_TH, row, query, weight)
            entry = chunk * threads + T.get_thread_binding()
            if entry < entries:
                if entry < places[2][row]:
                    page = places[0][places[1][row], entry // size]
                    widen(keys, page, entry % size, key)
                    _finish(query, weight, key, score_TS, row, entry)
                else:
                    score_TS[row, entry] = -T.infinity("float32")

    return score
