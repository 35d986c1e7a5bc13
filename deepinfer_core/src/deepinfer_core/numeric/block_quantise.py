"""How are numbers quantised in groups that share a scale, and how do they come back?

Every function takes any float dtype, rounds its input to fp32 and works in fp32; the quantisers are
exact in the sense that each result is defined bit by bit:

| format | a | scale s | data |
|---|---|---|---|
| ``mxfp8``, ``fp8_32x32`` | max(amax, 1e-4) | 2^ceil(log2(a / 448)) | e4m3(x / s) |
| ``mxfp4`` | max(amax, 6 x 2^-126) | 2^ceil(log2(a / 6)) | e2m1(x / s) |
| ``fp4_e4m3x16`` | max(amax, 6 x 2^-9) | e4m3(min(a / 6, 448)) | e2m1(x * (1 / s)) |

Division by 448 and by 6 is a product with the fp32 constant, as in the kernels; for every bf16 amax
both give the same scale. The reciprocal 1 / s of ``fp4_e4m3x16`` is rounded to fp32 and multiplied,
which differs from a division only where x / s is an exact midpoint.

Not a number: kernels cannot raise, so a NaN must come out as NaN. e4m3 has a NaN code, so there
only that element becomes NaN and the scale is made from the others. e2m1 has none, so in the
four-bit formats the group's scale becomes NaN, and with it the whole group. An infinity counts as
the largest finite fp32 number in amax and saturates as data; decoded in fp32 it overflows back to
infinity (ue8m0 scales) or comes out as 2688, the largest value there is (``fp4_e4m3x16``).

Decoded values are exact in fp32, and in bf16 as well (with scales as the quantisers make them:
3 mantissa bits times a power of two, or 1 bit times 3 bits).
"""

import torch

from deepinfer_core.numeric.e2m1 import MAX_E2M1, decode_e2m1, encode_e2m1, pack_e2m1
from deepinfer_core.numeric.e4m3 import MAX_E4M3, encode_e4m3
from deepinfer_core.numeric.formats import number_format
from deepinfer_core.numeric.ue8m0 import ceil_log2_byte, decode_ue8m0, reciprocal_ue8m0

__all__ = [
    "dequantise_fp4_e4m3x16",
    "dequantise_fp8_32x32",
    "dequantise_mxfp4",
    "dequantise_mxfp8",
    "quantise_fp4_e4m3x16",
    "quantise_fp8_32x32",
    "quantise_mxfp4",
    "quantise_mxfp8",
]

MIN_AMAX_E4M3 = 1e-4
MIN_AMAX_MXFP4 = 6 * 2.0**-126
MIN_AMAX_FP4_E4M3X16 = 6 * 2.0**-9
_LARGEST = torch.finfo(torch.float32).max
_BLOCK = 32  # rows and columns of one fp8_32x32 block


def quantise_mxfp8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise the last dimension in groups of 32 to e4m3 with ue8m0 scales.

    Args:
        x: float, [..., D], D a multiple of 32.

    Returns:
        ``torch.float8_e4m3fn`` [..., D] and uint8 scales [..., D / 32].

    Raises:
        NotSupported: D is not a multiple of 32.
    """
    groups = _groups(x, "mxfp8")
    amax = _finite_amax(groups).clamp(min=MIN_AMAX_E4M3)
    scale = ceil_log2_byte(amax * (1 / MAX_E4M3))
    return encode_e4m3(groups * reciprocal_ue8m0(scale)[..., None]).flatten(-2), scale


def dequantise_mxfp8(
    data: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Undo ``quantise_mxfp8``: [..., D] and [..., D / 32] to [..., D] of ``dtype``."""
    groups = _split(data.to(torch.float32), 32)
    return (groups * decode_ue8m0(scale)[..., None]).flatten(-2).to(dtype)


def quantise_mxfp4(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise the last dimension in groups of 32 to packed e2m1 with ue8m0 scales.

    Args:
        x: float, [..., D], D a multiple of 32.

    Returns:
        uint8 [..., D / 2] and uint8 scales [..., D / 32].

    Raises:
        NotSupported: D is not a multiple of 32.
    """
    groups = _groups(x, "mxfp4")
    amax = _amax_with_nan(groups).clamp(min=MIN_AMAX_MXFP4)
    scale = ceil_log2_byte(amax * (1 / MAX_E2M1))
    codes = encode_e2m1(groups * reciprocal_ue8m0(scale)[..., None])
    return pack_e2m1(codes).flatten(-2), scale


def dequantise_mxfp4(
    data: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Undo ``quantise_mxfp4``: [..., D / 2] and [..., D / 32] to [..., D] of ``dtype``."""
    groups = _split(decode_e2m1(data), 32)
    return (groups * decode_ue8m0(scale)[..., None]).flatten(-2).to(dtype)


def quantise_fp4_e4m3x16(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise the last dimension in groups of 16 to packed e2m1 with e4m3 scales.

    Args:
        x: float, [..., D], D a multiple of 16.

    Returns:
        uint8 [..., D / 2] and ``torch.float8_e4m3fn`` scales [..., D / 16].

    Raises:
        NotSupported: D is not a multiple of 16.
    """
    groups = _groups(x, "fp4_e4m3x16")
    amax = _amax_with_nan(groups).clamp(min=MIN_AMAX_FP4_E4M3X16)
    scale = encode_e4m3(amax * (1 / MAX_E2M1))
    codes = encode_e2m1(groups * (1.0 / scale.to(torch.float32))[..., None])
    return pack_e2m1(codes).flatten(-2), scale


def dequantise_fp4_e4m3x16(
    data: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Undo ``quantise_fp4_e4m3x16``: [..., D / 2] and [..., D / 16] to [..., D] of ``dtype``."""
    groups = _split(decode_e2m1(data), 16)
    return (groups * scale.to(torch.float32)[..., None]).flatten(-2).to(dtype)


def quantise_fp8_32x32(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise a matrix, or a stack of matrices, to e4m3 with one ue8m0 scale per 32 x 32 block.

    Blocks at the lower and right edge may be smaller than 32 x 32.

    Args:
        weight: float, [..., N, K].

    Returns:
        ``torch.float8_e4m3fn`` [..., N, K] and uint8 scales [..., ceil(N / 32), ceil(K / 32)].
    """
    rows, columns = weight.shape[-2:]
    padded = torch.nn.functional.pad(
        weight.to(torch.float32), (0, -columns % _BLOCK, 0, -rows % _BLOCK)
    )
    down, across = padded.shape[-2] // _BLOCK, padded.shape[-1] // _BLOCK
    blocks = padded.reshape(*padded.shape[:-2], down, _BLOCK, across, _BLOCK)
    amax = _finite(blocks).abs().amax((-3, -1)).clamp(min=MIN_AMAX_E4M3)
    scale = ceil_log2_byte(amax * (1 / MAX_E4M3))
    data = encode_e4m3(blocks * reciprocal_ue8m0(scale)[..., None, :, None])
    data = data.flatten(-2).flatten(-3, -2)
    return data[..., :rows, :columns].contiguous(), scale


def dequantise_fp8_32x32(
    data: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Undo ``quantise_fp8_32x32``: [..., N, K] and its block scales to [..., N, K] of ``dtype``."""
    rows, columns = data.shape[-2:]
    wide = decode_ue8m0(scale).repeat_interleave(_BLOCK, -1)[..., :columns]
    values = data.to(torch.float32) * wide.repeat_interleave(_BLOCK, -2)[..., :rows, :]
    return values.to(dtype)


def _groups(x: torch.Tensor, name: str) -> torch.Tensor:
    form = number_format(name)
    form.check_width(x.shape[-1])
    return _split(x.to(torch.float32), form.group_columns)


def _split(x: torch.Tensor, group: int) -> torch.Tensor:
    return x.reshape(*x.shape[:-1], x.shape[-1] // group, group)


def _finite(x: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num(x, nan=0.0, posinf=_LARGEST, neginf=-_LARGEST)


def _finite_amax(groups: torch.Tensor) -> torch.Tensor:
    return _finite(groups).abs().amax(-1)


def _amax_with_nan(groups: torch.Tensor) -> torch.Tensor:
    return groups.abs().amax(-1).clamp(max=_LARGEST)
