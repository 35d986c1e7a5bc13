"""Do packed experts hold the same numbers, where the kernel for Hopper looks for them?"""

import pytest
import torch
from deepinfer_core.errors import NotSupported
from deepinfer_core.numeric import QuantTensor, quantise
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_nvidia.gemm.packing import pack_experts, packed_shape, unpack_experts

SHIFTED_MASK = 0x81C081C0
SHAPES = [(1, 64, 64), (3, 40, 96), (2, 129, 288)]


def experts(shape: tuple[int, int, int], generator: torch.Generator) -> QuantTensor:
    return quantise(torch.randn(*shape, generator=generator), "mxfp4")


@pytest.mark.parametrize("shape", SHAPES)
def test_unpacking_gives_back_codes_and_scales(
    shape: tuple[int, int, int], generator: torch.Generator
) -> None:
    weight = experts(shape, generator)
    packed = pack_experts(weight)
    assert packed.shape == packed_shape(*shape)
    back = unpack_experts(packed, *shape[1:])
    assert_same_bits(back.data, weight.data)
    assert back.scale is not None
    assert weight.scale is not None
    assert_same_bits(back.scale, weight.scale)


def registers(words: torch.Tensor) -> torch.Tensor:
    """What the kernel makes of words [..]: two bf16 of four registers, [.., 4, 2], as numbers."""
    word = words.to(torch.int64) & 0xFFFFFFFF
    found = [
        word & SHIFTED_MASK,
        word << 3 & SHIFTED_MASK,
        word << 6 & SHIFTED_MASK,
        word << 1 & 0x80008000 | word >> 5 & 0x01000100 | word >> 4 & 0x00C000C0,
    ]
    halves = torch.stack([torch.stack((r & 0xFFFF, r >> 16), dim=-1) for r in found], dim=-2)
    return bf16(halves).double()


def bf16(bits: torch.Tensor) -> torch.Tensor:
    return torch.where(bits >= 1 << 15, bits - (1 << 16), bits).to(torch.int16).view(torch.bfloat16)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_lane_finds_the_operands_of_its_matrix_instruction(
    shape: tuple[int, int, int], generator: torch.Generator
) -> None:
    """Registers 0 to 3: channel lane / 4, 8 further, again both; inputs 2 (lane % 4), 8 further."""
    weight = experts(shape, generator)
    packed = pack_experts(weight)
    _, out_width, in_width = shape
    tiles, steps = packed.shape[1:3]
    words = packed[..., :2048].contiguous().view(torch.int32).reshape(-1, tiles, steps, 4, 8, 4, 4)
    fields = packed[..., 2048:].reshape(-1, tiles, steps, 4, 8, 1, 2, 2).to(torch.int64)
    # [expert, tile, step, warp, lane / 4, lane % 4, word, register, half]
    tiny = registers(words)
    powers = bf16(fields << 7).double()  # [.., upper channels, group]
    scale = powers[..., [0, 1, 0, 1], :].repeat_interleave(2, dim=-1).transpose(-1, -2)
    found = tiny * scale[..., None]
    found = found.unflatten(-2, (2, 2))  # [.., word, upper inputs, upper channels, half]
    found = found.permute(0, 1, 3, 8, 4, 2, 6, 7, 5, 9)
    found = found.reshape(-1, tiles * 64, steps * 64)
    assert torch.equal(found[:, :out_width, :in_width], weight.dequantise(torch.float64))
    assert not found[:, out_width:].any()
    assert not found[:, :, in_width:].any()


@pytest.mark.parametrize(("byte", "is_taken"), [(7, False), (8, True), (128, True), (129, False)])
def test_scales_that_bf16_cannot_follow_are_refused(byte: int, is_taken: bool) -> None:
    weight = QuantTensor(
        data=torch.full((1, 64, 32), 0x77, dtype=torch.uint8),
        scale=torch.full((1, 64, 2), 127, dtype=torch.uint8),
        format="mxfp4",
    )
    assert weight.scale is not None
    weight.scale[0, 5, 1] = byte
    if is_taken:
        values = unpack_experts(pack_experts(weight), 64, 64).dequantise(torch.float64)
        assert torch.equal(values, weight.dequantise(torch.float64))
    else:
        with pytest.raises(NotSupported, match=str(byte)):
            pack_experts(weight)


def test_groups_of_zeros_may_have_any_scale() -> None:
    """The quantiser gives them the smallest, which would be refused."""
    weight = quantise(torch.zeros(1, 64, 64), "mxfp4")
    assert weight.scale is not None
    assert int(weight.scale.max()) == 1
    assert not unpack_experts(pack_experts(weight), 64, 64).dequantise().any()
