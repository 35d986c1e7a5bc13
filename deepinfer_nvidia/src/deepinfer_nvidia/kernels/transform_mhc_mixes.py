"""Mixes from products. Twin: ``deepinfer_core.reference.hyper_connections``, ``mixes``.

One thread a row: it adds the pieces in their order and keeps the square matrix in registers.
Sinkhorn divides by a sum as a product with its reciprocal.
"""

import math
from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.transform import MhcMixesSpec

from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["build", "default_tuning"]


def default_tuning(_spec: MhcMixesSpec) -> KernelTuning:
    """Small blocks, so that few rows still spread over the device."""
    return KernelTuning(threads=32)


def build(spec: MhcMixesSpec, tuning: KernelTuning) -> Any:
    """Mixes of ``spec.streams`` streams."""
    rows = T.dynamic("rows")
    streams, pieces = spec.streams, spec.pieces
    mixes = streams * (2 + streams)
    vector = math.gcd(mixes, 4)
    eps, norm_eps = T.float32(spec.eps), T.float32(spec.norm_eps)

    @T.macro
    def normalise(comb: Any, inner: int, outer: int) -> None:
        """Divide along the axis with stride ``inner`` by the sums."""
        total = T.alloc_local((1,), "float32")
        for o in T.unroll(streams):
            total[0] = comb[o * outer]
            for i in T.unroll(1, streams):
                total[0] += comb[o * outer + i * inner]
            total[0] = T.float32(1) / (total[0] + eps)
            for i in T.unroll(streams):
                comb[o * outer + i * inner] *= total[0]

    @T.macro
    def exponentials(comb: Any, z: Any) -> None:
        """Softmax of the rows, plus eps."""
        total = T.alloc_local((1,), "float32")
        most = T.alloc_local((1,), "float32")
        for m in T.unroll(streams):
            most[0] = z[2 * streams + m * streams]
            for n in T.unroll(1, streams):
                most[0] = T.max(most[0], z[2 * streams + m * streams + n])
            total[0] = T.float32(0)
            for n in T.unroll(streams):
                comb[m * streams + n] = T.exp(z[2 * streams + m * streams + n] - most[0])
                total[0] += comb[m * streams + n]
            for n in T.unroll(streams):
                comb[m * streams + n] = comb[m * streams + n] / total[0] + eps

    @T.prim_func
    def transform_mhc_mixes(
        product_PTM: T.Tensor((pieces, rows, mixes), "float32"),
        square_PT: T.Tensor((pieces, rows), "float32"),
        base_M: T.Tensor((mixes,), "float32"),
        scale_3: T.Tensor((3,), "float32"),
        pre_TS: T.Tensor((rows, streams), "float32"),
        post_TS: T.Tensor((rows, streams), "float32"),
        comb_TSS: T.Tensor((rows, streams, streams), "float32"),
    ) -> None:
        with T.Kernel(T.ceildiv(rows, tuning.threads), threads=tuning.threads) as block:
            thread = T.get_thread_binding()
            row = block * tuning.threads + thread
            z = T.alloc_local((mixes,), "float32")
            part = T.alloc_local((vector,), "float32")
            square = T.alloc_local((1,), "float32")
            comb = T.alloc_local((streams * streams,), "float32")
            if row < rows:
                square[0] = T.float32(0)
                for m in T.unroll(mixes):
                    z[m] = T.float32(0)
                for p in T.serial(pieces):
                    square[0] += square_PT[p, row]
                    for m in T.unroll(mixes // vector):
                        for v in T.vectorized(vector):
                            part[v] = product_PTM[p, row, m * vector + v]
                        for v in T.unroll(vector):
                            z[m * vector + v] += part[v]
                square[0] = T.rsqrt(square[0] / spec.width + norm_eps)
                for m in T.unroll(mixes):
                    kind = T.if_then_else(m < streams, 0, T.if_then_else(m < 2 * streams, 1, 2))
                    z[m] = z[m] * square[0] * scale_3[kind] + base_M[m]
                for s in T.unroll(streams):
                    pre_TS[row, s] = T.float32(1) / (T.exp(-z[s]) + T.float32(1)) + eps
                    post_TS[row, s] = T.float32(2) / (T.exp(-z[streams + s]) + T.float32(1))
                exponentials(comb, z)
                normalise(comb, streams, 1)
                for _ in T.serial(spec.sinkhorn_iterations - 1):
                    normalise(comb, 1, streams)
                    normalise(comb, streams, 1)
                for i in T.unroll(streams * streams):
                    comb_TSS[row, i // streams, i % streams] = comb[i]

    return transform_mhc_mixes
