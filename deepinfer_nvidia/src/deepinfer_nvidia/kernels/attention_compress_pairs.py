"""Blend pairs of tokens. Twin: ``deepinfer_core.reference.cache_codec``, ``compress_pairs``.

A thread blends some channels of a row with those of the row before it, which is another row of the
call or one that the state keeps; if it is neither, its gates and values are zeros.
``attention_keep_pairs`` writes the state afterwards.
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
    width, dtype = spec.width, spec.dtype
    group = vector_elements(width, "float32", alignment=spec.alignment_bytes)
    groups = width // group

    @T.prim_func
    def attention_compress_pairs(
        value_TD: T.Tensor((rows, width), "float32"),
        gate_TD: T.Tensor((rows, width), "float32"),
        partner_slot_T: T.Tensor((rows,), "int64"),
        partner_row_T: T.Tensor((rows,), "int64"),
        state_PRX: T.StridedTensor(
            (page_count, spec.rows_per_page, 2 * width), (*spec.state_strides, 1), "float32"
        ),
        latent_TD: T.Tensor((rows, width), dtype),
    ) -> None:
        with T.Kernel(T.ceildiv(rows * groups, tuning.threads), threads=tuning.threads) as block:
            let_next_start(rows)
            T.pdl_sync()
            row = (block * tuning.threads + T.get_thread_binding()) // groups
            first = (block * tuning.threads + T.get_thread_binding()) % groups * group
            gates = T.alloc_local((2, group), "float32")
            values = T.alloc_local((2, group), "float32")
            latent = T.alloc_local((group,), dtype)
            partner = T.alloc_var("int32")
            slot = T.alloc_var("int32")
            if row < rows:
                partner = T.cast(partner_row_T[row], "int32")
                slot = T.cast(partner_slot_T[row], "int32")
                for j in T.vectorized(group):
                    gates[1, j] = gate_TD[row, first + j]
                for j in T.vectorized(group):
                    values[1, j] = value_TD[row, first + j]
                for j in T.vectorized(group):
                    gates[0, j] = 0.0
                for j in T.vectorized(group):
                    values[0, j] = 0.0
                if partner >= 0:
                    for j in T.vectorized(group):
                        gates[0, j] = gate_TD[partner, first + j]
                    for j in T.vectorized(group):
                        values[0, j] = value_TD[partner, first + j]
                else:
                    if slot >= 0:
                        page = T.cast(slot // spec.rows_per_page, "int64")
                        place = slot % spec.rows_per_page
                        for j in T.vectorized(group):
                            gates[0, j] = state_PRX[page, place, first + j]
                        for j in T.vectorized(group):
                            values[0, j] = state_PRX[page, place, width + first + j]
                for j in T.unroll(group):
                    largest = T.max(gates[0, j], gates[1, j])
                    earlier = T.exp(gates[0, j] - largest)
                    later = T.exp(gates[1, j] - largest)
                    total = earlier * values[0, j] + later * values[1, j]
                    latent[j] = T.cast(total / (earlier + later), dtype)
                for j in T.vectorized(group):
                    latent_TD[row, first + j] = latent[j]

    return attention_compress_pairs
