"""In which order do MXFP4 experts lie in memory, so that a warp loads them as MMA operands?

A record holds 64 channels and 64 inputs: 2048 bytes of codes, then 128 bytes of scales. In it,
each of 4 warps has 512 bytes, each of its 32 lanes 16 of them: one 32-bit word for each 16 inputs.
A word holds the lane's four A registers of ``m64k16``: eight codes, two (neighbouring inputs) a
register.

The bits of a code (sign s, magnitude m2 m1 m0) lie in a 16-bit half of the word so that a shift and
a mask put them where bf16 has its sign (bit 15) and its lowest exponent bits and highest mantissa
bit (8, 7, 6). That number is the code's value times 2^-126:

| register | s | m2 m1 m0 | shift |
|---|---|---|---|
| 0 | 15 | 8 7 6 | none |
| 1 | 12 | 5 4 3 | left 3 |
| 2 | 9 | 2 1 0 | left 6 |
| 3 | 14 | 13 11 10 | left 1, right 5, right 4 |

A scale byte b, 2^(b - 127), is stored as b + 126: the exponent field of 2^126 times the scale. One
bf16 multiplication applies both; it is exact.

Shapes: E experts, N channels, K inputs, C = K / 2 bytes, G = K / 32 scales.
"""

from __future__ import annotations

import torch
from deepinfer_core.errors import NotSupported
from deepinfer_core.numeric import QuantTensor
from deepinfer_core.numeric.e2m1 import pack_e2m1, unpack_e2m1

__all__ = ["RECORD_BYTES", "pack_experts", "packed_shape", "unpack_experts"]

_SIDE = 64
_CODE_BYTES = 2048
RECORD_BYTES = _CODE_BYTES + 128
"""Codes and scales of 64 channels and 64 inputs."""

_STEPS = 4
"""Records along K are a multiple of this, so that a kernel may take up to 4 at once."""

_LEAST_SCALE, _LARGEST_SCALE = 8, 128
"""Scale bytes whose products with a code, and with 2^126, are normal bf16 numbers."""

_BITS = ((15, 8, 7, 6), (12, 5, 4, 3), (9, 2, 1, 0), (14, 13, 11, 10))


def packed_shape(experts: int, out_width: int, in_width: int) -> tuple[int, int, int, int]:
    """Shape of packed weights: [E, tiles of channels, records along K, bytes]."""
    steps = -(-in_width // _SIDE)
    return experts, -(-out_width // _SIDE), -(-steps // _STEPS) * _STEPS, RECORD_BYTES


def pack_experts(weight: QuantTensor) -> torch.Tensor:
    """Reorder ``mxfp4`` weights [E, N, K]; new memory, one expert at a time.

    Raises:
        NotSupported: a scale is so small or large that a value would not be a normal bf16 number.
    """
    assert weight.scale is not None
    packed = torch.empty(packed_shape(*weight.shape), dtype=torch.uint8, device=weight.data.device)
    for data_NC, all_scale_NG, into in zip(weight.data, weight.scale, packed, strict=True):
        codes_NK = unpack_e2m1(data_NC)
        scale_NG = _scales_that_matter(codes_NK, all_scale_NG)
        into[..., :_CODE_BYTES] = _pack_codes(codes_NK, *into.shape[:2])
        into[..., _CODE_BYTES:] = _pack_scales(scale_NG, *into.shape[:2])
    return packed


def unpack_experts(packed: torch.Tensor, out_width: int, in_width: int) -> QuantTensor:
    """The weights [E, N, K] that ``pack_experts`` was given."""
    tiles, steps = packed.shape[1:3]
    data, scale = [], []
    for record in packed:
        codes = _unpack_codes(record[..., :_CODE_BYTES])
        data.append(pack_e2m1(codes[:out_width, :in_width]))
        fields = record[..., _CODE_BYTES:].reshape(tiles, steps, 4, 8, 2, 2)
        fields = fields.permute(0, 2, 4, 3, 1, 5).reshape(tiles * _SIDE, steps * 2)
        scale.append(_from_field(fields[:out_width, : in_width // 32]))
    return QuantTensor(data=torch.stack(data), scale=torch.stack(scale), format="mxfp4")


def _scales_that_matter(codes_NK: torch.Tensor, scale_NG: torch.Tensor) -> torch.Tensor:
    """The scales, 1 for groups of zeros (whose quantised scale is the smallest there is)."""
    is_zero_NG = (codes_NK.reshape(codes_NK.shape[0], -1, 32) & 7).amax(-1) == 0
    scale = torch.where(is_zero_NG, 127, scale_NG)
    if scale.numel() == 0 or scale.is_meta:
        return scale  # nothing to look at, as in a rehearsal
    least, largest = int(scale.min()), int(scale.max())
    if least < _LEAST_SCALE or largest > _LARGEST_SCALE:
        raise NotSupported(
            f"asked for mxfp4 experts with scale bytes from {least} to {largest}, found a kernel"
            f" for {_LEAST_SCALE} to {_LARGEST_SCALE} (2^-119 to 2)",
            hint="such weights are unusual: check the checkpoint; core.reference takes them",
        )
    return scale


def _to_field(scale: torch.Tensor) -> torch.Tensor:
    return (scale.to(torch.int16) + 126).to(torch.uint8)


def _from_field(field: torch.Tensor) -> torch.Tensor:
    return (field.to(torch.int16) - 126).to(torch.uint8)


def _padded(x_NK: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    missing = (0, columns - x_NK.shape[1], 0, rows - x_NK.shape[0])
    return torch.nn.functional.pad(x_NK, missing)


def _tables(device: torch.device) -> torch.Tensor:
    """[register, code]: the code's bits at their place in a half word."""
    table = [
        [
            sum((code >> (3 - bit) & 1) << place for bit, place in enumerate(places))
            for code in range(16)
        ]
        for places in _BITS
    ]
    return torch.tensor(table, dtype=torch.int32, device=device)


def _pack_codes(codes_NK: torch.Tensor, tiles: int, steps: int) -> torch.Tensor:
    codes = _padded(codes_NK, tiles * _SIDE, steps * _SIDE)
    # Channel = (tile, warp, upper half of 16, lane / 4); input = (step, word, upper half of 16,
    # lane % 4, half word).
    codes = codes.reshape(tiles, 4, 2, 8, steps, 4, 2, 4, 2)
    codes = codes.permute(0, 4, 1, 3, 7, 5, 6, 2, 8).reshape(tiles, steps, 4, 8, 4, 4, 4, 2)
    table = _tables(codes.device)
    register = torch.arange(4, device=codes.device)[:, None]
    bits = table[register, codes.to(torch.int64)].sum(-2, dtype=torch.int32)
    halves = torch.where(bits >= 1 << 15, bits - (1 << 16), bits).to(torch.int16)
    return halves.contiguous().reshape(tiles, steps, -1).view(torch.uint8)


def _unpack_codes(record: torch.Tensor) -> torch.Tensor:
    tiles, steps = record.shape[:2]
    halves = record.contiguous().view(torch.int16).to(torch.int32)
    # [.., register, bit]: 2^3 for the sign, then the magnitude.
    places = torch.tensor(_BITS, dtype=torch.int32, device=record.device)
    weights = torch.tensor((8, 4, 2, 1), dtype=torch.int32, device=record.device)
    codes = ((halves[..., None, None] >> places & 1) * weights).sum(-1)
    # [tile, step, warp, lane / 4, lane % 4, word, half word, upper inputs, upper channels]
    stacked = codes.reshape(tiles, steps, 4, 8, 4, 4, 2, 2, 2)
    ordered = stacked.permute(0, 2, 8, 3, 1, 5, 7, 4, 6)
    return ordered.reshape(tiles * _SIDE, steps * _SIDE).to(torch.uint8)


def _pack_scales(scale_NG: torch.Tensor, tiles: int, steps: int) -> torch.Tensor:
    # Padding gets the field of 2^0; its codes are zero.
    fields = _padded(_to_field(scale_NG), tiles * _SIDE, steps * 2)
    fields = fields.reshape(tiles, 4, 2, 8, steps, 2).permute(0, 4, 1, 3, 2, 5)
    return fields.reshape(tiles, steps, 128)
