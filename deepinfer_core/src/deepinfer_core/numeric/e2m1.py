"""How does a number become a four-bit e2m1 code, and how are two codes packed into a byte?

Codes 0 to 7 mean 0, 0.5, 1, 1.5, 2, 3, 4, 6; bit 3 is the sign, so code 8 is minus zero. There is
no NaN and no infinity: whoever quantises must carry a NaN in the scale (see ``block_quantise``).

Rules: round to nearest, ties to the even code; values beyond 6 and infinities saturate; the sign
of zero is kept. In a byte the lower nibble holds the even channel.
"""

import torch

__all__ = ["E2M1_VALUES", "MAX_E2M1", "decode_e2m1", "encode_e2m1", "pack_e2m1", "unpack_e2m1"]

MAX_E2M1 = 6.0
E2M1_VALUES = (
    0.0,
    0.5,
    1.0,
    1.5,
    2.0,
    3.0,
    4.0,
    6.0,
    -0.0,
    -0.5,
    -1.0,
    -1.5,
    -2.0,
    -3.0,
    -4.0,
    -6.0,
)

# Midpoints between neighbouring magnitudes. A tie goes to the even code: down at 0.25, 1.25, 2.5
# and 5, up at 0.75, 1.75 and 3.5. An upward tie is written as the fp32 number just below the
# midpoint, because ``bucketize`` counts the boundaries strictly below its argument.
_BELOW = 1.0 - 2.0**-24
_BOUNDARIES = (0.25, 0.75 * _BELOW, 1.25, 1.75 * _BELOW, 2.5, 3.5 * _BELOW, 5.0)


def encode_e2m1(x: torch.Tensor) -> torch.Tensor:
    """Round to e2m1, saturating.

    Args:
        x: any float dtype and shape; rounded to fp32 first. A NaN gets the code of 6.

    Returns:
        uint8 codes 0 to 15, one a byte, the shape of ``x``.
    """
    x = x.to(torch.float32)
    boundaries = torch.tensor(_BOUNDARIES, dtype=torch.float32, device=x.device)
    magnitude = torch.bucketize(x.abs(), boundaries, out_int32=True)
    return (magnitude + torch.signbit(x) * 8).to(torch.uint8)


def pack_e2m1(codes: torch.Tensor) -> torch.Tensor:
    """Pack codes [..., D] into bytes [..., D / 2]; D must be even."""
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack_e2m1(packed: torch.Tensor) -> torch.Tensor:
    """Unpack bytes [..., D / 2] (uint8 or int8) into uint8 codes [..., D]."""
    packed = packed.view(torch.uint8)
    return torch.stack((packed & 0x0F, packed >> 4), dim=-1).flatten(-2)


def decode_e2m1(packed: torch.Tensor) -> torch.Tensor:
    """Look up the fp32 values [..., D] of packed codes [..., D / 2] (uint8 or int8)."""
    byte = torch.arange(256, dtype=torch.uint8, device=packed.device)
    values = torch.tensor(E2M1_VALUES, dtype=torch.float32, device=packed.device)
    pairs = values[unpack_e2m1(byte[:, None]).to(torch.int32)]
    flat = packed.contiguous().view(torch.uint8).reshape(-1).to(torch.int32)
    return pairs.index_select(0, flat).reshape(*packed.shape[:-1], 2 * packed.shape[-1])
