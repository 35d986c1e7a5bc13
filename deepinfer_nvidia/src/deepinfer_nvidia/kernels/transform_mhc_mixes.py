"""Mixes from products. Twin: ``deepinfer_core.reference.hyper_connections``, ``mixes``.

A warp adds up the pieces of a row in their order, one lane a mix, so that all of them are loaded at
once. Then one thread a row has the square matrix in registers. Sinkhorn divides by a sum as a
product with its reciprocal, the device's fast one: an exact quotient branches, and so cannot
overlap with the next.
"""

from dataclasses import dataclass
from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.transform import MhcMixesSpec

from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["Tuning", "build", "default_tuning"]

_WARP = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(KernelTuning):
    """Adds how many rows a block has; the threads are theirs times the lanes of a row."""

    block_rows: int


def default_tuning(spec: MhcMixesSpec) -> Tuning:
    """A warp a row, where its mixes fit into one."""
    block_rows = 4
    return Tuning(threads=block_rows * _lanes(spec.streams), block_rows=block_rows)


def _lanes(streams: int) -> int:
    """Lanes of a row: a mix each, one for the squares, in whole warps."""
    return -(-(streams * (2 + streams) + 1) // _WARP) * _WARP


def build(spec: MhcMixesSpec, tuning: Tuning) -> Any:
    """Mixes of ``spec.streams`` streams."""
    rows = T.dynamic("rows")
    streams, pieces, block_rows = spec.streams, spec.pieces, tuning.block_rows
    mixes, lanes = streams * (2 + streams), _lanes(spec.streams)
    eps, norm_eps = T.float32(spec.eps), T.float32(spec.norm_eps)
    normalise, exponentials = _normalise(streams, eps), _exponentials(streams, eps)

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
        with T.Kernel(T.ceildiv(rows, block_rows), threads=tuning.threads) as block:
            thread = T.get_thread_binding()
            sums = T.alloc_shared((block_rows, lanes), "float32")
            total = T.alloc_local((1,), "float32")
            z = T.alloc_local((mixes,), "float32")
            comb = T.alloc_local((streams * streams,), "float32")
            place, lane = thread // lanes, thread % lanes
            total[0] = T.float32(0)
            if block * block_rows + place < rows:
                if lane < mixes:
                    for p in T.unroll(pieces):
                        total[0] += product_PTM[p, block * block_rows + place, lane]
                if lane == mixes:
                    for p in T.unroll(pieces):
                        total[0] += square_PT[p, block * block_rows + place]
            sums[place, lane] = total[0]
            T.sync_threads()
            row = block * block_rows + thread
            if thread < block_rows and row < rows:
                total[0] = T.rsqrt(sums[thread, mixes] / spec.width + norm_eps)
                for m in T.unroll(mixes):
                    kind = T.if_then_else(m < streams, 0, T.if_then_else(m < 2 * streams, 1, 2))
                    z[m] = sums[thread, m] * total[0] * scale_3[kind] + base_M[m]
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


def _normalise(streams: int, eps: Any) -> Any:
    @T.macro
    def normalise(comb: Any, inner: int, outer: int) -> None:
        """Divide along the axis with stride ``inner`` by the sums."""
        total = T.alloc_local((1,), "float32")
        for o in T.unroll(streams):
            total[0] = comb[o * outer]
            for i in T.unroll(1, streams):
                total[0] += comb[o * outer + i * inner]
            total[0] = T.fast_rcp(total[0] + eps)
            for i in T.unroll(streams):
                comb[o * outer + i * inner] *= total[0]

    return normalise


def _exponentials(streams: int, eps: Any) -> Any:
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
            total[0] = T.fast_rcp(total[0])
            for n in T.unroll(streams):
                comb[m * streams + n] = comb[m * streams + n] * total[0] + eps

    return exponentials
