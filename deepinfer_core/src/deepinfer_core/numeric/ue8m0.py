"""How does a ue8m0 byte stand for a power of two?

Byte b means 2^(b - 127); b = 255 means NaN. There is no sign, no zero and no infinity. Scales are
kept as ``torch.uint8``, because that is what checkpoints and caches hold.

Byte 255 is refused where data enters (``find_nan_scale``, used by the checkpoint loader). The
arithmetic below cannot raise in the middle of a kernel, so there the byte decodes to NaN.
"""

import functools

import torch

__all__ = [
    "BIAS",
    "NAN_BYTE",
    "ceil_log2_byte",
    "decode_ue8m0",
    "find_nan_scale",
    "reciprocal_ue8m0",
]

BIAS = 127
NAN_BYTE = 255

_MANTISSA_BITS = 23
_MANTISSA_MASK = (1 << _MANTISSA_BITS) - 1
_NAN_BITS = 0x7FC00000
# 2^-127 is below the smallest normal fp32 number: mantissa 0.5 with exponent field 0.
_SMALLEST_BITS = 1 << (_MANTISSA_BITS - 1)


def ceil_log2_byte(x: torch.Tensor) -> torch.Tensor:
    """Give the byte of the smallest power of two that is at least ``x``.

    Works on the bits: the exponent, plus one if any mantissa bit is set, so that an exact power of
    two stays what it is and no rounding of a logarithm can go wrong.

    Args:
        x: fp32, any shape. Positive normal numbers up to 2^127; NaN gives byte 255.

    Returns:
        uint8, the shape of ``x``.
    """
    bits = x.view(torch.int32)
    has_mantissa = (bits & _MANTISSA_MASK) != 0
    exponent = (bits >> _MANTISSA_BITS) & 0xFF
    return (exponent + has_mantissa).clamp(max=NAN_BYTE).to(torch.uint8)


def decode_ue8m0(scale: torch.Tensor) -> torch.Tensor:
    """Expand bytes to fp32 powers of two, exactly; byte 255 becomes NaN.

    Args:
        scale: uint8, any shape.

    Returns:
        fp32, the shape of ``scale``. Byte 0 gives the subnormal 2^-127.
    """
    return _values(scale.device)[scale.to(torch.int64)]


@functools.cache
@torch.inference_mode(False)
def _values(device: torch.device) -> torch.Tensor:
    """What each of the 256 bytes means."""
    bits = torch.arange(256, dtype=torch.int32) << _MANTISSA_BITS
    bits[0], bits[NAN_BYTE] = _SMALLEST_BITS, _NAN_BITS
    return bits.view(torch.float32).to(device)


def reciprocal_ue8m0(scale: torch.Tensor) -> torch.Tensor:
    """Give 1 / scale as fp32, exactly, for bytes 0 to 253; byte 254 gives 2^-127, 255 gives NaN."""
    byte = scale.to(torch.int32)
    bits = torch.where(byte == 2 * BIAS, _SMALLEST_BITS, (2 * BIAS - byte) << _MANTISSA_BITS)
    return torch.where(byte == NAN_BYTE, _NAN_BITS, bits).view(torch.float32)


def find_nan_scale(scale: torch.Tensor) -> int | None:
    """Return the flat index of the first byte 255, or None if every scale is a number."""
    hits = (scale.reshape(-1) == NAN_BYTE).nonzero()
    return int(hits[0]) if hits.numel() else None
