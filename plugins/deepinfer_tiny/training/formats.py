"""How does a number look after it went through one of the checkpoint's or caches' formats?

Every quantiser here returns the dequantised value (bit-exact) and passes the gradient straight
through. `encode_*` gives the stored bytes; both share the same scale rule, so an exported weight
is the weight that training saw.

Shapes: last dimension = channels; groups of 32 (or 16) consecutive channels share a scale.
"""

from __future__ import annotations

import torch

__all__ = [
    "encode_block32",
    "encode_mxfp4",
    "encode_row32",
    "fake_block32",
    "fake_fp4_16",
    "fake_mxfp4",
    "fake_row32",
]

_E4M3_MAX = 448.0
_E2M1_MAX = 6.0
_MIN_FP8_AMAX = 1e-4
_MIN_MXFP4_AMAX = 6.0 * 2.0**-126
_MIN_FP4_16_AMAX = 6.0 * 2.0**-9
# The e2m1 codes 0..7; their negatives have bit 3 set.
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def _through(x: torch.Tensor, quantised: torch.Tensor) -> torch.Tensor:
    """The value of ``quantised`` (exactly: x - x is 0) with the gradient of ``x``."""
    return quantised.detach() + (x - x.detach())


def _exponent(amax: torch.Tensor, largest: float) -> torch.Tensor:
    """Biased ue8m0 byte (int32) of the smallest power of two >= amax / largest."""
    bits = (amax * (1.0 / largest)).view(torch.int32)
    return (bits >> 23) + ((bits & 0x7FFFFF) != 0).to(torch.int32)


def _power(biased: torch.Tensor) -> torch.Tensor:
    """2 ** (biased - 127) as fp32 for biased in [1, 254]."""
    return (biased << 23).view(torch.float32)


def _round_e4m3(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(-_E4M3_MAX, _E4M3_MAX).to(torch.float8_e4m3fn)


def _round_e2m1(x: torch.Tensor) -> torch.Tensor:
    """Nearest e2m1 value, ties to the even code (`torch.round` is half to even on each step)."""
    a = x.abs().clamp(max=_E2M1_MAX)
    fine, middle, coarse = torch.round(a * 2) / 2, torch.round(a), torch.round(a / 2) * 2
    value = torch.where(a < 2, fine, torch.where(a < 4, middle, coarse))
    return torch.where(x < 0, -value, value)


def _row32_parts(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    groups = x.detach().float().unflatten(-1, (-1, 32))
    amax = groups.abs().amax(-1, keepdim=True).clamp(min=_MIN_FP8_AMAX)
    biased = _exponent(amax, _E4M3_MAX)
    return _round_e4m3(groups * _power(254 - biased)), biased


def fake_row32(x: torch.Tensor) -> torch.Tensor:
    """FP8 activations, MXFP8 keys and Engram rows: e4m3 with one ue8m0 scale per 32 channels."""
    data, biased = _row32_parts(x)
    return _through(x, (data.float() * _power(biased)).flatten(-2).to(x.dtype))


def encode_row32(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Stored form of `fake_row32`: e4m3 [..., C] and scale bytes uint8 [..., C / 32]."""
    data, biased = _row32_parts(x)
    return data.flatten(-2), biased.squeeze(-1).to(torch.uint8)


def _block32_parts(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    out_features, in_features = w.shape[-2:]
    tiles = w.detach().float().reshape(*w.shape[:-2], out_features // 32, 32, in_features // 32, 32)
    amax = tiles.abs().amax((-3, -1), keepdim=True).clamp(min=_MIN_FP8_AMAX)
    biased = _exponent(amax, _E4M3_MAX)
    return _round_e4m3(tiles * _power(254 - biased)), biased


def fake_block32(w: torch.Tensor) -> torch.Tensor:
    """FP8 weights [..., out, in]: e4m3 with one ue8m0 scale per 32 x 32 block."""
    data, biased = _block32_parts(w)
    return _through(w, (data.float() * _power(biased)).reshape(w.shape))


def encode_block32(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Stored form of `fake_block32`: e4m3 [..., out, in], bytes uint8 [..., out/32, in/32]."""
    data, biased = _block32_parts(w)
    return data.reshape(w.shape), biased.squeeze(-1).squeeze(-2).to(torch.uint8)


def _mxfp4_parts(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    groups = x.detach().float().unflatten(-1, (-1, 32))
    amax = groups.abs().amax(-1, keepdim=True).clamp(min=_MIN_MXFP4_AMAX)
    biased = _exponent(amax, _E2M1_MAX)
    return _round_e2m1(groups / _power(biased)), biased


def fake_mxfp4(x: torch.Tensor) -> torch.Tensor:
    """Experts, index keys and index queries: e2m1 with one ue8m0 scale per 32 channels."""
    data, biased = _mxfp4_parts(x)
    return _through(x, (data * _power(biased)).flatten(-2).to(x.dtype))


def encode_mxfp4(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Stored form of `fake_mxfp4`: packed int8 [..., C / 2], low nibble first, and scale bytes."""
    data, biased = _mxfp4_parts(x)
    data = data.flatten(-2)
    code = torch.searchsorted(torch.tensor(_E2M1), data.abs().contiguous())
    code = code + 8 * torch.signbit(data)  # a negative value that rounds to 0 keeps its sign
    packed = code[..., 0::2] + 16 * code[..., 1::2]
    return packed.to(torch.uint8).view(torch.int8), biased.squeeze(-1).to(torch.uint8)


def fake_fp4_16(x: torch.Tensor) -> torch.Tensor:
    """Compressed cache entries: e2m1 with one e4m3 scale per 16 channels."""
    groups = x.detach().float().unflatten(-1, (-1, 16))
    amax = groups.abs().amax(-1, keepdim=True).clamp(min=_MIN_FP4_16_AMAX)
    scale = (amax * (1.0 / _E2M1_MAX)).clamp(max=_E4M3_MAX).to(torch.float8_e4m3fn).float()
    data = _round_e2m1(groups * (1.0 / scale))
    return _through(x, (data * scale).flatten(-2).to(x.dtype))
