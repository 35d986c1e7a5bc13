"""Hash of n-grams. Twin: ``deepinfer_core.reference.engram``, ``table_rows``, with the same bits.

One thread a row. The hash of the layer is compiled in, so that no division is left.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.transform import EngramRowsSpec

from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["build", "default_tuning"]


def default_tuning(_spec: EngramRowsSpec) -> KernelTuning:
    """Small blocks: there is little to do."""
    return KernelTuning(threads=32)


def build(spec: EngramRowsSpec, tuning: KernelTuning) -> Any:
    """N-grams of up to ``len(spec.multipliers)`` ids."""
    rows = T.dynamic("rows")
    size, columns = len(spec.multipliers), len(spec.primes)
    tables = tuple(zip(spec.orders, spec.primes, spec.offsets, strict=True))

    @T.prim_func
    def transform_engram_rows(
        compressed_TN: T.Tensor((rows, size), "int64"),
        row_TC: T.Tensor((rows, columns), "int64"),
    ) -> None:
        with T.Kernel(T.ceildiv(rows, tuning.threads), threads=tuning.threads) as block:
            let_next_start(rows)
            T.pdl_sync()
            thread = T.get_thread_binding()
            row = block * tuning.threads + thread
            mixed = T.alloc_local((size,), "int64")
            if row < rows:
                for distance, multiplier in enumerate(spec.multipliers):
                    mixed[distance] = compressed_TN[row, distance] * T.int64(multiplier)
                for distance in range(1, size):
                    mixed[distance] = mixed[distance] ^ mixed[distance - 1]
                for column, (order, prime, offset) in enumerate(tables):
                    row_TC[row, column] = mixed[order - 1] % T.int64(prime) + T.int64(offset)

    return transform_engram_rows
