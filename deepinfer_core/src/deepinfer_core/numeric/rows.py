"""How does one row of a cache look as bytes?

A row of D values is laid out as [data | scales]. With D = 512 that is 512 + 16 = 528 bytes in
``mxfp8`` and 256 + 32 = 288 in ``fp4_e4m3x16``; with D = 128 it is 64 + 4 = 68 in ``mxfp4``. A
plain format (``bfloat16``, ``float32``, ``float64``) stores its values, in the machine's byte
order, and no scales.

Caches that keep the data of a whole block together and its scales behind them use ``encode_parts``
and ``decode_parts`` and place the two parts themselves.
"""

import torch

from deepinfer_core.errors import NotSupported
from deepinfer_core.numeric.formats import NumberFormat, number_format
from deepinfer_core.numeric.quant_tensor import QuantTensor, quantise

__all__ = ["decode_parts", "decode_rows", "encode_parts", "encode_rows", "row_bytes"]


def row_bytes(format_name: str, width: int) -> int:
    """Bytes of one row of ``width`` values.

    Raises:
        NotSupported: unknown format, one without row scales, or a width of partial groups.
    """
    return number_format(format_name).row_bytes(width)


def encode_parts(x: torch.Tensor, format_name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Encode rows to the bytes of their data and, apart, of their scales.

    Args:
        x: float, [..., D].
        format_name: a format with row scales, or a plain one.

    Returns:
        uint8 [..., data bytes] and uint8 [..., scale bytes]; the latter has width 0 if plain.

    Raises:
        NotSupported: as in ``row_bytes``.
    """
    form = number_format(format_name)
    scale_bytes = form.scale_bytes(x.shape[-1])
    stored = quantise(x, format_name)
    data = stored.data.contiguous().view(torch.uint8)
    if stored.scale is None:
        return data, data.new_empty((*data.shape[:-1], scale_bytes))
    return data, stored.scale.view(torch.uint8)


def decode_parts(
    data: torch.Tensor,
    scale: torch.Tensor,
    format_name: str,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Undo ``encode_parts``.

    Args:
        data: uint8, [..., data bytes].
        scale: uint8, [..., scale bytes].
        format_name: the format they were encoded in.
        dtype: of the result; every quantised value is exact in bf16, fp32 and fp64.

    Returns:
        [..., D], new memory unless a plain format is read as it is.
    """
    form = number_format(format_name)
    stored = data.contiguous().view(form.storage)
    return QuantTensor(data=stored, scale=_typed_scale(scale, form), format=format_name).dequantise(
        dtype
    )


def encode_rows(x: torch.Tensor, format_name: str) -> torch.Tensor:
    """Encode rows [..., D] to uint8 [..., row_bytes], laid out [data | scales].

    Raises:
        NotSupported: as in ``row_bytes``.
    """
    return torch.cat(encode_parts(x, format_name), dim=-1)


def decode_rows(
    rows: torch.Tensor, format_name: str, width: int, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Undo ``encode_rows``: uint8 [..., row_bytes] to [..., width] of ``dtype``.

    Raises:
        NotSupported: as in ``row_bytes``, or the rows have another length than the width needs.
    """
    form = number_format(format_name)
    if rows.shape[-1] != form.row_bytes(width):
        raise NotSupported(
            f"asked for {form.name} rows of width {width} ({form.row_bytes(width)} bytes),"
            f" found rows of {rows.shape[-1]} bytes",
            hint="pass the width that the rows were encoded with",
        )
    data_bytes = form.data_bytes(width)
    return decode_parts(rows[..., :data_bytes], rows[..., data_bytes:], format_name, dtype)


def _typed_scale(scale: torch.Tensor, form: NumberFormat) -> torch.Tensor | None:
    if form.is_plain:
        return None
    return scale.contiguous().view(torch.float8_e4m3fn) if form.scale == "e4m3" else scale
