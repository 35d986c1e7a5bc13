"""Products of trunk and mixing weights. Twin: ``deepinfer_core.reference.arithmetic``.

That is ``row_product``, and ``row_sum`` of squares.

Tensor cores multiply bf16, and every fp32 number is the sum of three bf16 numbers: so the weights
come as three parts (``transform.parts``), each part is multiplied exactly, and sums are fp32. The
parts stand one below the other in a single product. A trunk of fp32 is split on the way.

Blocks share the width in pieces of a length that the spec fixes. The sum of a piece is complete
before it is added to the others, here or in ``transform_mhc_mixes``, in their order: so a row's
bits depend neither on other rows nor on who adds.
"""

from dataclasses import dataclass
from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.transform import MhcProductsSpec

from deepinfer_nvidia.kernels.early_start import FEW_ROWS, let_next_start
from deepinfer_nvidia.kernels.nearer import BRING_NEARER, bring_nearer, bytes_of_line
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["Tuning", "build", "default_tuning", "launch_tunings"]

_PARTS = 3

_SQUARES = 16
"""Channels whose squares a row adds up apart from each other, to save registers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(KernelTuning):
    """Adds tiles.

    Attributes:
        tile_rows: rows of a block.
        tile_width: channels of one step; divides the piece of the spec.
        stages: steps in flight.
    """

    tile_rows: int = 64
    tile_width: int = 64
    stages: int = 4


def default_tuning(spec: MhcProductsSpec) -> Tuning:
    """Tall tiles where blocks add up runs, which is for many rows, or else short ones."""
    return launch_tunings(spec)[-1 if spec.run > 1 else 0]


def launch_tunings(spec: MhcProductsSpec) -> tuple[Tuning, ...]:
    """For a tile of rows, for several, and for so many that their blocks of runs fill the device.

    Small blocks overlap with each other; tall ones, which share what is read of the weights among
    more rows, have warps that only copy. A trunk of fp32 is split in shared memory, which leaves
    none for steps in flight and for more rows.
    """
    alone = (("tl.disable_warp_specialized", True),)
    if spec.dtype != "bfloat16":
        return (Tuning(stages=1, pass_configs=alone),)
    wide = spec.piece_width % 128 == 0
    return (
        Tuning(tile_width=128 if wide else 64, stages=3, pass_configs=alone),
        Tuning(pass_configs=alone),
        Tuning(tile_rows=128, tile_width=128 if wide else 64, stages=3, threads=256),
    )


def build(spec: MhcProductsSpec, tuning: Tuning) -> Any:
    """Trunks of ``spec.width`` channels, streams flattened."""
    rows = T.dynamic("rows")
    width, mixes, pieces, dtype = spec.width, spec.mixes, spec.pieces, spec.dtype
    tile, step_width, columns = tuning.tile_rows, tuning.tile_width, spec.columns
    steps = spec.piece_width // step_width
    inputs = spec.run * spec.piece_width
    # The last block may have fewer inputs.
    near_bytes = bytes_of_line(min(inputs, width - (pieces - 1) * inputs), width)
    trips = -(-columns // tuning.threads) if near_bytes else 0
    # A trace-time choice; a range would become a loop of the kernel.
    is_split = dtype != "bfloat16"
    split_shapes = ((tile, step_width),) * _PARTS * is_split

    @T.prim_func
    def transform_mhc_products(
        trunk_TK: T.Tensor((rows, width), dtype),
        part_NK: T.Tensor((columns, width), "bfloat16"),
        product_PTM: T.Tensor((pieces, rows, mixes), "float32"),
        square_PT: T.Tensor((pieces, rows), "float32"),
    ) -> None:
        with T.Kernel(pieces, T.ceildiv(rows, tile), threads=tuning.threads) as (piece, block):
            let_next_start(rows)
            T.import_source(BRING_NEARER)
            for trip in T.unroll(trips):
                own = trip * tuning.threads + T.get_thread_binding()
                if own < columns and rows <= FEW_ROWS:
                    bring_nearer(part_NK[own, piece * inputs], near_bytes)
            T.pdl_sync()
            x = T.alloc_shared((tile, step_width), dtype)
            weight = T.alloc_shared((columns, step_width), "bfloat16")
            split = [T.alloc_shared(shape, "bfloat16") for shape in split_shapes]
            operands = split if is_split else [x]
            splits = [split] if is_split else []
            sums = T.alloc_fragment((tile, columns), "float32")
            product = T.alloc_fragment((tile, mixes), "float32")
            products = T.alloc_fragment((tile, mixes), "float32")
            channels = T.alloc_fragment((tile, _SQUARES), "float32")
            square = T.alloc_fragment((tile,), "float32")
            squares = T.alloc_fragment((tile,), "float32")
            T.clear(sums)
            T.clear(products)
            T.clear(channels)
            T.clear(squares)
            for step in T.Pipelined(spec.run * steps, num_stages=tuning.stages):
                first = piece * inputs + step * step_width
                T.copy(trunk_TK[block * tile, first], x)
                T.copy(part_NK[0, first], weight)
                for chunk in T.unroll(step_width // _SQUARES):
                    for i, j in T.Parallel(tile, _SQUARES):
                        channel = T.cast(x[i, chunk * _SQUARES + j], "float32")
                        channels[i, j] += channel * channel
                for parts in splits:
                    for i, j in T.Parallel(tile, step_width):
                        rest = x[i, j]
                        for operand in parts:
                            operand[i, j] = T.cast(rest, "bfloat16")
                            rest = rest - T.cast(T.cast(rest, "bfloat16"), "float32")
                for operand in operands:
                    T.gemm(
                        operand,
                        weight,
                        sums,
                        transpose_B=True,
                        policy=T.GemmWarpPolicy.FullRow,
                    )
                if step % steps == steps - 1:
                    # Smallest parts first; the compiler wants a loop for each distance.
                    for i, m in T.Parallel(tile, mixes):
                        product[i, m] = sums[i, 2 * mixes + m]
                    for i, m in T.Parallel(tile, mixes):
                        product[i, m] += sums[i, mixes + m]
                    for i, m in T.Parallel(tile, mixes):
                        product[i, m] += sums[i, m]
                    for i, m in T.Parallel(tile, mixes):
                        products[i, m] += product[i, m]
                    T.reduce_sum(channels, square, dim=1)
                    for i in T.Parallel(tile):
                        squares[i] += square[i]
                    T.clear(sums)
                    T.clear(channels)
            for i, m in T.Parallel(tile, mixes):
                if block * tile + i < rows:
                    product_PTM[piece, block * tile + i, m] = products[i, m]
            for i in T.Parallel(tile):
                if block * tile + i < rows:
                    square_PT[piece, block * tile + i] = squares[i]

    return transform_mhc_products
