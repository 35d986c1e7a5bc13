"""Where does C find a tensor, and is it what the kernel expects?

Kernels check nothing, so every tensor is compared here with the dtype and shape that its operator
needs.
"""

from collections.abc import Sequence

import torch

from deepinfer_core.errors import NotSupported

__all__ = ["address", "row_major", "slice_address"]


def address(x: torch.Tensor, dtype: torch.dtype, shape: Sequence[int]) -> int:
    """The address of a tensor whose elements lie one behind the other.

    Args:
        x: kept alive by the caller until the kernel has run.
        dtype: what it must have.
        shape: what it must have.

    Raises:
        NotSupported: it has another dtype or shape, or its elements lie apart.
    """
    if x.dtype is dtype and x.shape == shape and x.is_contiguous():
        return x.data_ptr()
    raise _unfit(x, dtype, shape)


def slice_address(x: torch.Tensor, dtype: torch.dtype, shape: Sequence[int]) -> int:
    """The same for rows that may lie apart; the caller tells the kernel how far.

    Raises:
        NotSupported: it has another dtype or shape.
    """
    if x.dtype is dtype and x.shape == shape:
        return x.data_ptr()
    raise _unfit(x, dtype, shape)


def row_major(x: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy of it whose elements lie one behind the other."""
    return x if x.is_contiguous() else x.contiguous()


def _unfit(x: torch.Tensor, dtype: torch.dtype, shape: Sequence[int]) -> NotSupported:
    return NotSupported(
        f"asked a compiled kernel for a contiguous tensor {tuple(shape)} of {dtype}, found"
        f" {tuple(x.shape)} of {x.dtype} with strides {x.stride()}",
        hint="hand over a contiguous tensor of that dtype and shape, or choose core.reference",
    )
