"""Score entries without tensor cores. Twin: ``deepinfer_core.reference.indexer``, ``scores``.

For fp32 queries, and for keys that are kept as they are: everything in fp32, a thread an entry, all
sums in the order of their terms. It serves exact comparisons, not speed.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.cache import IndexScoresSpec

from deepinfer_nvidia.kernels import number_codes as codes
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["build", "default_tuning"]


def default_tuning(spec: IndexScoresSpec) -> KernelTuning:
    """An entry a thread."""
    return KernelTuning(threads=128, pass_configs=(("tl.disable_safe_memory_legalize", True),))


def build(spec: IndexScoresSpec, tuning: KernelTuning) -> Any:
    """Keys in MXFP4 or in a plain format."""
    is_packed = spec.pages.number_format == "mxfp4"
    return _packed(spec, tuning) if is_packed else _plain(spec, tuning)


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


def _packed(spec: IndexScoresSpec, tuning: KernelTuning) -> Any:
    rows, page_count, entries = T.dynamic("rows"), T.dynamic("pages"), T.dynamic("entries")
    sequences, table_blocks = T.dynamic("sequences"), T.dynamic("table_blocks")
    pages, heads, width = spec.pages, spec.heads, spec.pages.width
    size, threads = pages.rows_per_page, tuning.threads

    @T.prim_func
    def attention_index_scores_wide(
        query_THJ: T.Tensor((rows, heads, width), spec.dtype),
        weight_TH: T.Tensor((rows, heads), spec.weight_dtype),
        data_PRX: T.StridedTensor(
            (page_count, size, width // 8), (*pages.data_strides, 1), "int32"
        ),
        scale_PRG: T.StridedTensor(
            (page_count, size, width // 32), (*pages.scale_strides, 1), "uint8"
        ),
        block_table_QB: T.Tensor((sequences, table_blocks), "int64"),
        sequence_T: T.Tensor((rows,), "int64"),
        visible_T: T.Tensor((rows,), "int64"),
        score_TS: T.Tensor((rows, entries), "float32"),
    ) -> None:
        with T.Kernel(T.ceildiv(entries, threads), rows, threads=threads) as (chunk, row):
            query = T.alloc_shared((heads, width), "float32")
            weight = T.alloc_shared((heads,), "float32")
            key = T.alloc_local((width,), "float32")
            _stage(query_THJ, weight_TH, row, query, weight)
            entry = chunk * threads + T.get_thread_binding()
            if entry < entries:
                if entry < visible_T[row]:
                    page = block_table_QB[sequence_T[row], entry // size]
                    for g in T.unroll(width // 32):
                        byte = T.cast(scale_PRG[page, entry % size, g], "int32")
                        for k in T.unroll(4):
                            word = data_PRX[page, entry % size, g * 4 + k]
                            for n in T.unroll(8):
                                key[g * 32 + k * 8 + n] = codes.e2m1_value(
                                    (word >> (4 * n)) & 15
                                ) * codes.value_of_byte(byte)
                    _finish(query, weight, key, score_TS, row, entry)
                else:
                    score_TS[row, entry] = -T.infinity("float32")

    return attention_index_scores_wide


def _plain(spec: IndexScoresSpec, tuning: KernelTuning) -> Any:
    rows, page_count, entries = T.dynamic("rows"), T.dynamic("pages"), T.dynamic("entries")
    sequences, table_blocks = T.dynamic("sequences"), T.dynamic("table_blocks")
    pages, heads, width = spec.pages, spec.heads, spec.pages.width
    size, threads = pages.rows_per_page, tuning.threads

    @T.prim_func
    def attention_index_scores_wide(
        query_THJ: T.Tensor((rows, heads, width), spec.dtype),
        weight_TH: T.Tensor((rows, heads), spec.weight_dtype),
        data_PRX: T.StridedTensor(
            (page_count, size, width), (*pages.data_strides, 1), pages.number_format
        ),
        block_table_QB: T.Tensor((sequences, table_blocks), "int64"),
        sequence_T: T.Tensor((rows,), "int64"),
        visible_T: T.Tensor((rows,), "int64"),
        score_TS: T.Tensor((rows, entries), "float32"),
    ) -> None:
        with T.Kernel(T.ceildiv(entries, threads), rows, threads=threads) as (chunk, row):
            query = T.alloc_shared((heads, width), "float32")
            weight = T.alloc_shared((heads,), "float32")
            key = T.alloc_local((width,), "float32")
            _stage(query_THJ, weight_TH, row, query, weight)
            entry = chunk * threads + T.get_thread_binding()
            if entry < entries:
                if entry < visible_T[row]:
                    page = block_table_QB[sequence_T[row], entry // size]
                    for j in T.unroll(width):
                        key[j] = T.cast(data_PRX[page, entry % size, j], "float32")
                    _finish(query, weight, key, score_TS, row, entry)
                else:
                    score_TS[row, entry] = -T.infinity("float32")

    return attention_index_scores_wide
