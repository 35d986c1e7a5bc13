"""What is a tensor together with its scales, and how does one get from numbers to it and back?"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from deepinfer_core.errors import NotSupported
from deepinfer_core.numeric import block_quantise
from deepinfer_core.numeric.formats import NumberFormat, number_format

__all__ = ["QuantTensor", "fake_quantise", "quantise"]

_Quantiser = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
_Dequantiser = Callable[[torch.Tensor, torch.Tensor, torch.dtype], torch.Tensor]

_QUANTISERS: dict[str, tuple[_Quantiser, _Dequantiser]] = {
    "mxfp8": (block_quantise.quantise_mxfp8, block_quantise.dequantise_mxfp8),
    "mxfp4": (block_quantise.quantise_mxfp4, block_quantise.dequantise_mxfp4),
    "fp4_e4m3x16": (block_quantise.quantise_fp4_e4m3x16, block_quantise.dequantise_fp4_e4m3x16),
    "fp8_32x32": (block_quantise.quantise_fp8_32x32, block_quantise.dequantise_fp8_32x32),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuantTensor:
    """Numbers as a checkpoint or a cache holds them.

    Attributes:
        data: in the storage dtype of the format; the last dimension is halved when two values
            share a byte.
        scale: one element per group (uint8 for ue8m0, ``torch.float8_e4m3fn`` for e4m3), or None
            for a plain format.
        format: a name in ``formats.FORMATS``.

    Raises:
        NotSupported: the format is unknown, or its scales are missing or superfluous.
    """

    data: torch.Tensor
    scale: torch.Tensor | None
    format: str

    def __post_init__(self) -> None:
        form = number_format(self.format)
        if form.is_plain != (self.scale is None):
            found = "none" if self.scale is None else "some"
            raise NotSupported(
                f"asked for a tensor in {self.format}, found {found} scales",
                hint="quantised formats need their scales, plain formats have none",
            )

    @property
    def number_format(self) -> NumberFormat:
        """The description of the format."""
        return number_format(self.format)

    @property
    def shape(self) -> torch.Size:
        """Shape in values, whatever the packing."""
        *leading, last = self.data.shape
        return torch.Size((*leading, last * self.number_format.values_per_element))

    @property
    def nbytes(self) -> int:
        """Bytes of data and scales together."""
        return self.data.nbytes + (0 if self.scale is None else self.scale.nbytes)

    def dequantise(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return the values; exact in fp32 and fp64, and in bf16 for every quantised format.

        A plain tensor that already has ``dtype`` is returned as it is, not copied.
        """
        if self.scale is None:
            return self.data.to(dtype)
        return _QUANTISERS[self.format][1](self.data, self.scale, dtype)


def quantise(x: torch.Tensor, format_name: str) -> QuantTensor:
    """Quantise ``x`` to a format by name; a plain format rounds to its dtype.

    Args:
        x: float, [..., D]; for ``fp8_32x32`` a matrix or stack of matrices.
        format_name: a name in ``formats.FORMATS``.

    Raises:
        NotSupported: the format is unknown, or the width is no multiple of its group.
    """
    form = number_format(format_name)
    if form.is_plain:
        return QuantTensor(data=x.to(form.storage), scale=None, format=format_name)
    data, scale = _QUANTISERS[format_name][0](x)
    return QuantTensor(data=data, scale=scale, format=format_name)


def fake_quantise(x: torch.Tensor, format_name: str) -> torch.Tensor:
    """Return what ``x`` becomes when it is stored in a format and read back, in the dtype of ``x``.

    For fp64 and fp32 input the quantisers see the input rounded to fp32, as everywhere.

    Raises:
        NotSupported: as in ``quantise``.
    """
    return quantise(x, format_name).dequantise(x.dtype)
