"""Which torch operations give a row the same bits in every batch, and at every place in it?

Batch invariance is a property of instruction order, so it rests on how torch's CPU kernels walk
through memory. The rules that all reference components follow:

* A matrix product picks its kernel, its split among threads and so its summation order by shape.
  So one call never has a shape that depends on the number of rows. ``row_product`` cuts rows into
  tiles of ``ROW_TILE``, pads the last one with zero rows and multiplies tile after tile;
  ``matrix_products`` multiplies one pair of matrices after the other. (``torch.bmm`` would save
  calls, but with two threads its bits were seen to depend on the length of the batch.)
* The kernels also look at alignment: odd row widths were seen to give a row other bits at other
  places of a tile. So summed widths are padded with zeros to a multiple of ``WIDTH_ALIGNMENT``.
* ``torch.sigmoid``, ``silu``, ``softplus`` and ``log1p`` use vector code for most elements and
  scalar code, with other roundings, for the last few: their result depends on the place. ``exp``,
  ``log``, ``sqrt``, ``rsqrt`` and ``logsigmoid`` do not; everything here is built from those.
* A sum over the last axis is one fixed tree for one width, unless there is a single row and the
  row is so long that torch splits it among threads. ``row_sum`` folds such rows first.

The contract suites check the result: every row count up to 70, at every row.
"""

import torch

__all__ = [
    "ROW_TILE",
    "WIDTH_ALIGNMENT",
    "accumulation_dtype",
    "align_width",
    "matrix_products",
    "mean_square",
    "row_product",
    "row_sum",
    "sigmoid",
    "silu",
    "softplus",
]

ROW_TILE = 8
"""Rows of one product. Eight rows cost twice as much as one where decoding has one row, and half as
much a row as tiles of four where a prompt has many."""

WIDTH_ALIGNMENT = 16
"""Elements; 64 bytes of fp32, one cache line and one vector register."""

_PARALLEL_FROM = 32768
"""Elements from which torch may split the sum of a single row among threads."""


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """Dtype of sums over values of ``dtype``: fp64 for fp64, otherwise fp32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def align_width(x_NK: torch.Tensor) -> torch.Tensor:
    """Pad the last axis with zeros as ``row_product`` wants it; the same tensor if it is."""
    missing = -x_NK.shape[-1] % WIDTH_ALIGNMENT
    return torch.nn.functional.pad(x_NK, (0, missing)) if missing else x_NK


def row_product(x_TK: torch.Tensor, weight_NK: torch.Tensor) -> torch.Tensor:
    """Multiply rows with a matrix so that a row's bits depend on that row alone.

    Args:
        x_TK: any float dtype, any strides; widened to the dtype of the weight.
        weight_NK: fp32 or fp64; its width may already be aligned.

    Returns:
        [T, N] of the weight's dtype, new memory.
    """
    weight_NK = align_width(weight_NK)
    rows, width = x_TK.shape
    out_width, aligned = weight_NK.shape
    tiles = -(-rows // ROW_TILE)
    x = weight_NK.new_zeros(tiles * ROW_TILE, aligned)
    x[:rows, :width] = x_TK
    out = weight_NK.new_empty(tiles * ROW_TILE, out_width)
    weight_KN = weight_NK.t()
    for start in range(0, tiles * ROW_TILE, ROW_TILE):
        tile = slice(start, start + ROW_TILE)
        torch.mm(x[tile], weight_KN, out=out[tile])
    return out[:rows]


def matrix_products(left_TXK: torch.Tensor, right_TKY: torch.Tensor) -> torch.Tensor:
    """Multiply pairs of matrices, each in a call of its own.

    Args:
        left_TXK: fp32 or fp64, contiguous; K is a multiple of ``WIDTH_ALIGNMENT``.
        right_TKY: the same dtype; may be expanded.

    Returns:
        [T, X, Y], new memory.
    """
    out = left_TXK.new_empty(*left_TXK.shape[:2], right_TKY.shape[2])
    for left, right, product in zip(left_TXK, right_TKY, out, strict=True):
        torch.mm(left, right, out=product)
    return out


def row_sum(x: torch.Tensor) -> torch.Tensor:
    """Sum over the last axis in an order that depends on its length only."""
    width = x.shape[-1]
    if width < _PARALLEL_FROM:
        return x.sum(-1)
    pieces = -(-width // (_PARALLEL_FROM // 2))
    padded = torch.nn.functional.pad(x, (0, -width % pieces))
    return row_sum(padded.reshape(*x.shape[:-1], pieces, -1).sum(-1))


def mean_square(x: torch.Tensor) -> torch.Tensor:
    """Mean of the squares over the last axis."""
    return row_sum(x * x) / x.shape[-1]


def sigmoid(x: torch.Tensor) -> torch.Tensor:
    """``1 / (1 + exp(-x))``; 0 where the exponential overflows."""
    return torch.exp(-x).add_(1).reciprocal_()


def silu(x: torch.Tensor) -> torch.Tensor:
    """``x * sigmoid(x)``."""
    return x / torch.exp(-x).add_(1)


def softplus(x: torch.Tensor) -> torch.Tensor:
    """``log(1 + exp(x))``, accurate for large negative and positive x."""
    return -torch.nn.functional.logsigmoid(-x)
