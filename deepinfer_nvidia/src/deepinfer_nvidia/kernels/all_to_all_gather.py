"""Rows in the order of their experts. Twin: ``deepinfer_core.reference.all_to_all``, ``dispatch``.

A thread copies a vector of a row; the first one of a row copies its routing weight.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.all_to_all import ExchangeRowsSpec

from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.vectors import VectorTuning, vector_tuning

__all__ = ["build", "default_tuning"]


def default_tuning(spec: ExchangeRowsSpec) -> VectorTuning:
    """One vector a thread: rows are few where time counts most."""
    return vector_tuning(spec.dtype, spec.width)


def build(spec: ExchangeRowsSpec, tuning: VectorTuning) -> Any:
    """Rows of ``spec.width`` channels, a multiple of ``tuning.vector``."""
    rows, dispatched = T.dynamic("rows"), T.dynamic("dispatched")
    width, choices, dtype, vector = spec.width, spec.choices, spec.dtype, tuning.vector
    per_row = width // vector

    @T.prim_func
    def all_to_all_gather(
        x_TD: T.Tensor((rows, width), dtype),
        weight_Tk: T.Tensor((rows, choices), "float32"),
        choice_R: T.Tensor((dispatched,), "int64"),
        x_RD: T.Tensor((dispatched, width), dtype),
        weight_R: T.Tensor((dispatched,), "float32"),
    ) -> None:
        with T.Kernel(
            T.ceildiv(dispatched * per_row, tuning.threads), threads=tuning.threads
        ) as block:
            let_next_start(dispatched)
            T.pdl_sync()
            index = block * tuning.threads + T.get_thread_binding()
            row = index // per_row
            first = index % per_row * vector
            choice = T.alloc_var("int32")
            x = T.alloc_local((vector,), dtype)
            weight = T.alloc_local((1,), "float32")
            if row < dispatched:
                choice = T.cast(choice_R[row], "int32")
                for v in T.vectorized(vector):
                    x[v] = T.cast(0, dtype)
                weight[0] = 0.0
                if choice >= 0:
                    for v in T.vectorized(vector):
                        x[v] = x_TD[choice // choices, first + v]
                    weight[0] = weight_Tk[choice // choices, choice % choices]
                for v in T.vectorized(vector):
                    x_RD[row, first + v] = x[v]
                if first == 0:
                    weight_R[row] = weight[0]

    return all_to_all_gather
