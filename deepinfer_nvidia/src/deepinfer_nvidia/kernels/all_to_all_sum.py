"""Sum of each row's experts. Twin: ``deepinfer_core.reference.all_to_all``, ``combine``.

With the bits of the twin: a thread adds the results of a row in the order of its experts.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.all_to_all import ExchangeRowsSpec

from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.vectors import VectorTuning, vector_tuning

__all__ = ["build", "default_tuning"]


def default_tuning(spec: ExchangeRowsSpec) -> VectorTuning:
    """One vector of every result a thread, of as many elements as one of the sum."""
    return vector_tuning("float32", spec.width)


def build(spec: ExchangeRowsSpec, tuning: VectorTuning) -> Any:
    """Rows of ``spec.width`` channels, a multiple of ``tuning.vector``."""
    rows, dispatched = T.dynamic("rows"), T.dynamic("dispatched")
    width, choices, dtype, vector = spec.width, spec.choices, spec.dtype, tuning.vector
    per_row = width // vector

    @T.prim_func
    def all_to_all_sum(
        y_RD: T.Tensor((dispatched, width), dtype),
        row_Tk: T.Tensor((rows, choices), "int64"),
        out_TD: T.Tensor((rows, width), "float32"),
    ) -> None:
        with T.Kernel(T.ceildiv(rows * per_row, tuning.threads), threads=tuning.threads) as block:
            let_next_start(rows)
            T.pdl_sync()
            index = block * tuning.threads + T.get_thread_binding()
            row = index // per_row
            first = index % per_row * vector
            place = T.alloc_var("int32")
            y = T.alloc_local((choices, vector), dtype)
            total = T.alloc_local((vector,), "float32")
            if row < rows:
                for c in T.unroll(choices):
                    place = T.cast(row_Tk[row, c], "int32")
                    for v in T.vectorized(vector):
                        y[c, v] = T.cast(0, dtype)
                    if place >= 0:
                        for v in T.vectorized(vector):
                            y[c, v] = y_RD[place, first + v]
                for v in T.unroll(vector):
                    total[v] = 0.0
                    for c in T.unroll(choices):
                        total[v] = T.ieee_add(total[v], T.cast(y[c, v], "float32"))
                for v in T.vectorized(vector):
                    out_TD[row, first + v] = total[v]

    return all_to_all_sum
