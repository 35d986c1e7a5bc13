"""Which tensors do kernels take as they are?

Rows of row-wise kernels may lie apart, as in a slice of a wider product; kernels are compiled for
the distance.

Shapes: T rows, D width.
"""

from __future__ import annotations

import torch
from deepinfer_core.errors import NotSupported

from deepinfer_nvidia.kernels.vectors import ACCESS_BYTES

__all__ = ["check", "dense", "dtype_name", "out_rows", "shaped", "sliced", "strided_rows"]

_NAMES = {torch.bfloat16: "bfloat16", torch.float32: "float32"}


def dtype_name(dtype: torch.dtype) -> str:
    """The name that specs use.

    Raises:
        NotSupported: the kernels do not read or write this dtype.
    """
    name = _NAMES.get(dtype)
    if name is None:
        raise NotSupported(
            f"asked for kernels on {dtype}, found bfloat16 and float32",
            hint="core.reference computes in every dtype",
        )
    return name


def shaped(x: torch.Tensor, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """The tensor itself, whose elements lie one behind the other; kernels read one at a time.

    Raises:
        NotSupported: another dtype, shape or layout.
    """
    if not (x.dtype is dtype and x.shape == shape and x.is_contiguous()):
        raise NotSupported(
            f"asked a kernel for a contiguous tensor {shape} of {dtype}, found"
            f" {tuple(x.shape)} of {x.dtype} with strides {x.stride()}",
            hint="hand over a contiguous tensor of that dtype and shape, or choose core.reference",
        )
    return x


def check(x: torch.Tensor, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """The tensor itself, whose elements lie one behind the other; kernels read vectors of them.

    Raises:
        NotSupported: another dtype, shape or layout, or an address that vectors cannot use.
    """
    if not (x.dtype is dtype and x.shape == shape and x.is_contiguous()):
        return shaped(x, dtype, *shape)
    if x.data_ptr() % ACCESS_BYTES:
        raise NotSupported(
            f"asked for a tensor at a multiple of {ACCESS_BYTES} bytes, found one at"
            f" {x.data_ptr() % ACCESS_BYTES} bytes past it",
            hint="hand over the start of an allocation, or slices of whole vectors",
        )
    return x


def dense(x: torch.Tensor) -> torch.Tensor:
    """An input whose elements lie one behind the other, copied only if they do not."""
    if x.is_contiguous() and not x.data_ptr() % ACCESS_BYTES:
        return x
    return x.clone(memory_format=torch.contiguous_format)


def strided_rows(x: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Rows [T, D] and the elements from one to the next; a copy only if they are out of shape.

    Leading axes count as rows. The copy is for channels that lie apart, for leading axes that are
    no single list, and for addresses that vectors cannot use.
    """
    x_TD = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    x_TD = sliced(x_TD)
    return x_TD, x_TD.stride(0)


def sliced(x: torch.Tensor) -> torch.Tensor:
    """A tensor whose channels lie side by side, at an address that vectors can use.

    The distance of a single row from the next means nothing; it becomes that of adjacent rows.
    """
    if x.stride(-1) != 1 or x.data_ptr() % ACCESS_BYTES:
        return x.clone(memory_format=torch.contiguous_format)
    if x.shape[0] == 1 and x.stride(0) != x.numel() and x.is_contiguous():
        return x.as_strided(x.shape, (x.numel(), *x.stride()[1:]))
    return x


def out_rows(x: torch.Tensor) -> torch.Tensor:
    """A result as rows [T, D], the same memory.

    Raises:
        NotSupported: the rows lie apart.
    """
    x = check(x, x.dtype, *x.shape)
    return x if x.dim() == 2 else x.view(-1, x.shape[-1])
