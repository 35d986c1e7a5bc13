"""Mixes from products. Twin: ``deepinfer_core.reference.hyper_connections``, ``mixes``.

Threads add up the pieces of a few mixes of a row in their order, so that all of them are loaded at
once. Then a row has a lane for each stream, which keeps a row and a column of the square matrix.

Sinkhorn leaves the matrix alone: it scales rows and columns, and each step needs only the sums of
one by the scales of the other. So a step is one exchange between lanes, a sum, and one reciprocal,
the device's fast one; the matrix is multiplied by its scales at the end.
"""

from dataclasses import dataclass
from math import gcd
from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.transform import MhcMixesSpec

from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["Tuning", "build", "default_tuning"]

_WARP = 32
_VECTOR = 4
_FEW_PIECES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(KernelTuning):
    """Adds how many rows a block has; its threads are at least the lanes of those."""

    block_rows: int


def default_tuning(spec: MhcMixesSpec) -> Tuning:
    """The rows of one warp, or of two if there is much to load, and four warps to load with."""
    warps = 1 if spec.pieces <= _FEW_PIECES else 2
    block_rows = max(1, warps * _WARP // _lanes(spec.streams))
    return Tuning(threads=4 * _WARP, block_rows=block_rows)


def _lanes(streams: int) -> int:
    """Lanes of a row: a power of two."""
    return 1 << (streams - 1).bit_length()


def build(spec: MhcMixesSpec, tuning: Tuning) -> Any:
    """Mixes of ``spec.streams`` streams."""
    rows = T.dynamic("rows")
    streams, block_rows = spec.streams, tuning.block_rows
    mixes, lanes = streams * (2 + streams), _lanes(spec.streams)
    eps, norm_eps = T.float32(spec.eps), T.float32(spec.norm_eps)
    add_up, powers = _add_up(spec, tuning), _powers(streams, eps)
    sinkhorn = _sinkhorn(streams, lanes, spec.sinkhorn_iterations, eps)
    working = block_rows * lanes

    @T.prim_func
    def transform_mhc_mixes(
        product_PTM: T.Tensor((spec.pieces, rows, mixes), "float32"),
        square_PT: T.Tensor((spec.pieces, rows), "float32"),
        base_M: T.Tensor((mixes,), "float32"),
        scale_3: T.Tensor((3,), "float32"),
        pre_TS: T.Tensor((rows, streams), "float32"),
        post_TS: T.Tensor((rows, streams), "float32"),
        comb_TSS: T.Tensor((rows, streams, streams), "float32"),
    ) -> None:
        with T.Kernel(T.ceildiv(rows, block_rows), threads=tuning.threads) as block:
            let_next_start(rows)
            thread = T.get_thread_binding()
            sums = T.alloc_shared((block_rows, mixes + 1), "float32")
            matrix = T.alloc_shared((block_rows, streams, streams), "float32")
            base = T.alloc_local((2 + streams,), "float32")
            scale = T.alloc_local((3,), "float32")
            across = T.alloc_local((streams,), "float32")
            down = T.alloc_local((streams,), "float32")
            factor = T.alloc_local((1,), "float32")
            # Lanes beyond the streams compute the last one again; threads beyond the rows, a row.
            place = T.min(thread // lanes, block_rows - 1)
            stream = T.min(thread % lanes, streams - 1)
            row = block * block_rows + place
            has_stream = thread < working and thread % lanes < streams
            for kind in T.unroll(3):
                scale[kind] = scale_3[kind]
            base[0] = base_M[stream]
            base[1] = base_M[streams + stream]
            for n in T.unroll(streams):
                base[2 + n] = base_M[(2 + stream) * streams + n]
            # The products may still be on their way: this kernel starts before they end.
            T.pdl_sync()
            add_up(product_PTM, square_PT, sums, block, rows)
            T.sync_threads()
            mean = sums[place, mixes] * T.float32(1 / spec.width)
            factor[0] = T.rsqrt(mean + norm_eps)
            if has_stream and row < rows:
                pre = sums[place, stream] * factor[0] * scale[0] + base[0]
                pre_TS[row, stream] = _sigmoid(pre) + eps
                post = sums[place, streams + stream] * factor[0] * scale[1] + base[1]
                post_TS[row, stream] = T.float32(2) * _sigmoid(post)
            for n in T.unroll(streams):
                product = sums[place, (2 + stream) * streams + n]
                across[n] = product * factor[0] * scale[2] + base[2 + n]
            powers(across)
            if has_stream:
                for n in T.unroll(streams):
                    matrix[place, stream, n] = across[n]
            T.sync_threads()
            for n in T.unroll(streams):
                down[n] = matrix[place, n, stream]
            # Whole warps, since lanes exchange.
            if thread < -(-working // _WARP) * _WARP:
                sinkhorn(across, down)
            if has_stream and row < rows:
                for n in T.vectorized(streams):
                    comb_TSS[row, stream, n] = across[n]

    return transform_mhc_mixes


def _add_up(spec: MhcMixesSpec, tuning: Tuning) -> Any:
    pieces, block_rows, threads = spec.pieces, tuning.block_rows, tuning.threads
    mixes = spec.streams * (2 + spec.streams)
    vector = gcd(mixes, _VECTOR)
    per_row = mixes // vector
    vectors = block_rows * per_row

    @T.macro
    def add_up(product_PTM: Any, square_PT: Any, sums: Any, block: Any, rows: Any) -> None:
        """Sums of pieces, those of squares last; rows beyond the last one have none."""
        thread = T.get_thread_binding()
        parts = T.alloc_local((pieces * vector,), "float32")
        squares = T.alloc_local((pieces,), "float32")
        total = T.alloc_local((vector,), "float32")
        run = T.alloc_local((vector,), "float32")
        for trip in T.unroll(-(-vectors // threads)):
            index = trip * threads + thread
            place, first = index // per_row, index % per_row * vector
            # From the last thread down: the first ones have more vectors.
            own = trip * threads + threads - 1 - thread
            has_vector = index < vectors and block * block_rows + place < rows
            has_square = own < block_rows and block * block_rows + own < rows
            if has_vector:
                for p in T.unroll(pieces):
                    for v in T.vectorized(vector):
                        parts[p * vector + v] = product_PTM[
                            p, block * block_rows + place, first + v
                        ]
            if has_square:
                for p in T.unroll(pieces):
                    squares[p] = square_PT[p, block * block_rows + own]
            if index < vectors:
                for v in T.unroll(vector):
                    total[v] = T.float32(0)
                if has_vector:
                    for r in T.unroll(pieces // spec.run):
                        for v in T.unroll(vector):
                            run[v] = T.float32(0)
                        for p in T.unroll(spec.run):
                            for v in T.unroll(vector):
                                run[v] += parts[(r * spec.run + p) * vector + v]
                        for v in T.unroll(vector):
                            total[v] += run[v]
                for v in T.unroll(vector):
                    sums[place, first + v] = total[v]
            if own < block_rows:
                total[0] = T.float32(0)
                if has_square:
                    for r in T.unroll(pieces // spec.run):
                        run[0] = T.float32(0)
                        for p in T.unroll(spec.run):
                            run[0] += squares[r * spec.run + p]
                        total[0] += run[0]
                sums[own, mixes] = total[0]

    return add_up


def _sigmoid(x: Any) -> Any:
    return T.fast_rcp(T.exp(-x) + T.float32(1))


def _powers(streams: int, eps: Any) -> Any:
    @T.macro
    def powers(across: Any) -> None:
        """Softmax of a row, plus eps."""
        total = T.alloc_local((1,), "float32")
        most = T.alloc_local((1,), "float32")
        most[0] = across[0]
        for n in T.unroll(1, streams):
            most[0] = T.max(most[0], across[n])
        total[0] = T.float32(0)
        for n in T.unroll(streams):
            across[n] = T.exp(across[n] - most[0])
            total[0] += across[n]
        total[0] = T.fast_rcp(total[0])
        for n in T.unroll(streams):
            across[n] = across[n] * total[0] + eps

    return powers


def _sinkhorn(streams: int, lanes: int, iterations: int, eps: Any) -> Any:
    @T.macro
    def sinkhorn(across: Any, down: Any) -> None:
        """Scale this lane's row, ``across``, and column, ``down``; columns last."""
        row_scale = T.alloc_local((1,), "float32")
        column_scale = T.alloc_local((1,), "float32")
        total = T.alloc_local((1,), "float32")
        total[0] = down[0]
        for n in T.unroll(1, streams):
            total[0] += down[n]
        row_scale[0] = T.float32(1)
        column_scale[0] = T.fast_rcp(total[0] + eps)
        for _ in T.serial(iterations - 1):
            total[0] = T.float32(0)
            for n in T.unroll(streams):
                total[0] += across[n] * T.shfl_sync(column_scale[0], n, lanes)
            row_scale[0] *= T.fast_rcp(total[0] * row_scale[0] + eps)
            total[0] = T.float32(0)
            for n in T.unroll(streams):
                total[0] += down[n] * T.shfl_sync(row_scale[0], n, lanes)
            column_scale[0] *= T.fast_rcp(total[0] * column_scale[0] + eps)
        for n in T.unroll(streams):
            across[n] *= row_scale[0] * T.shfl_sync(column_scale[0], n, lanes)

    return sinkhorn
