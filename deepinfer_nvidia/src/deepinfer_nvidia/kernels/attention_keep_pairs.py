"""Keep raw gates and values. Twin: ``deepinfer_core.reference.cache_codec``, ``compress_pairs``.

The second step of it: a row of the state is a gate and then a value, as they are; rows without a
slot are not kept.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.cache import CompressPairsSpec

from deepinfer_nvidia.kernels.compiler_switches import NO_BOUNDS_CHECKS
from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.row_vectors import vector_elements
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["build", "default_tuning"]


def default_tuning(spec: CompressPairsSpec) -> KernelTuning:
    """Small blocks: rows are few in a step that decodes."""
    return KernelTuning(threads=128, pass_configs=NO_BOUNDS_CHECKS)


def build(spec: CompressPairsSpec, tuning: KernelTuning) -> Any:
    """Rows of ``spec.width`` channels."""
    rows, page_count = T.dynamic("rows"), T.dynamic("pages")
    width = spec.width
    group = vector_elements(width, "float32", alignment=spec.alignment_bytes)
    groups = width // group

    @T.prim_func
    def attention_keep_pairs(
        value_TD: T.Tensor((rows, width), "float32"),
        gate_TD: T.Tensor((rows, width), "float32"),
        slot_T: T.Tensor((rows,), "int64"),
        state_PRX: T.StridedTensor(
            (page_count, spec.rows_per_page, 2 * width), (*spec.state_strides, 1), "float32"
        ),
    ) -> None:
        with T.Kernel(T.ceildiv(rows * groups, tuning.threads), threads=tuning.threads) as block:
            let_next_start(rows)
            T.pdl_sync()
            row = (block * tuning.threads + T.get_thread_binding()) // groups
            first = (block * tuning.threads + T.get_thread_binding()) % groups * group
            slot = T.alloc_var("int32")
            if row < rows:
                slot = T.cast(slot_T[row], "int32")
                if slot >= 0:
                    page = T.cast(slot // spec.rows_per_page, "int64")
                    place = slot % spec.rows_per_page
                    for j in T.vectorized(group):
                        state_PRX[page, place, first + j] = gate_TD[row, first + j]
                    for j in T.vectorized(group):
                        state_PRX[page, place, width + first + j] = value_TD[row, first + j]

    return attention_keep_pairs
