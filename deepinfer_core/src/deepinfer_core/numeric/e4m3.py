"""How does a number become an e4m3 byte?

e4m3 has one sign, four exponent and three mantissa bits, bias 7. This is the variant without
infinities (``torch.float8_e4m3fn``): 0x7f and 0xff are NaN, the largest value is 448, the smallest
positive one 2^-9.

Rules: round to nearest, ties to even; values beyond 448 and infinities saturate; NaN stays NaN;
the sign of zero is kept.
"""

import torch

__all__ = ["MAX_E4M3", "encode_e4m3", "find_nan_e4m3"]

MAX_E4M3 = 448.0


def encode_e4m3(x: torch.Tensor) -> torch.Tensor:
    """Round to e4m3, saturating.

    Args:
        x: any float dtype and shape; rounded to fp32 first.

    Returns:
        ``torch.float8_e4m3fn``, the shape of ``x``.
    """
    # Whether the plain cast saturates or gives NaN differs between torch's versions and devices;
    # clamp keeps NaN.
    return x.to(torch.float32).clamp(-MAX_E4M3, MAX_E4M3).to(torch.float8_e4m3fn)


def find_nan_e4m3(data: torch.Tensor) -> int | None:
    """Return the flat index of the first NaN code (0x7f or 0xff), or None.

    Args:
        data: ``torch.float8_e4m3fn`` or its bytes as uint8, contiguous.
    """
    magnitude = data.reshape(-1).view(torch.uint8) & 0x7F
    if magnitude.numel() == 0 or int(magnitude.max()) < 0x7F:
        return None
    return int((magnitude == 0x7F).nonzero()[0])
