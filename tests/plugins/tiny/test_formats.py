"""Do the training quantisers round and pack as the checkpoint format says?

The input and the bytes are the published golden values of the format.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[3] / "plugins" / "deepinfer_tiny"))

from training import formats

ROW = ((7 * torch.arange(32) % 32) - 15.5).mul(0.37).bfloat16().float()


def test_row_scales_give_the_published_bytes() -> None:
    data, scale = formats.encode_row32(ROW)
    expected = "fcf5e17079f9f061757cf6e76d78faf254737bf8ea6a78fbf3d4727af8ed6776"  # 32 e4m3 bytes
    assert data.view(torch.uint8).numpy().tobytes().hex() == expected
    assert scale.tolist() == [121]


def test_mxfp4_gives_the_published_bytes() -> None:
    packed, scale = formats.encode_mxfp4(ROW)
    assert packed.view(torch.uint8).numpy().tobytes().hex() == "df49e61c75ae63ce50e73bf68d64be62"
    assert scale.tolist() == [127]


def test_a_block_shares_one_scale_of_its_largest_value() -> None:
    w = torch.ones(64, 32)
    w[40, 3] = 448.0 * 4
    data, scale = formats.encode_block32(w)
    assert scale.tolist() == [[127 - 8], [127 + 2]]  # 1 / 448 needs 2^-8, 1792 / 448 needs 2^2
    assert data[40, 3].float() == 448.0


@pytest.mark.parametrize(
    "quantise", [formats.fake_row32, formats.fake_mxfp4, formats.fake_fp4_16, formats.fake_block32]
)
def test_the_gradient_passes_straight_through(quantise) -> None:
    x = torch.linspace(-3, 5, 64 * 32).reshape(64, 32).requires_grad_()
    quantise(x).square().sum().backward()
    assert torch.equal(x.grad, 2 * quantise(x).detach())


def test_fp4_entries_hold_the_published_values() -> None:
    # Scales 0.9375 and 0.875; the codes are the published packed bytes read low nibble first.
    table = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    table += [-x for x in table]
    expected = []
    for packed, scale in (("df49e61c75ae64df", 0.9375), ("50e73bf68d75ce62", 0.875)):
        for byte in bytes.fromhex(packed):
            expected += [table[byte & 15] * scale, table[byte >> 4] * scale]
    assert formats.fake_fp4_16(ROW).tolist() == expected
