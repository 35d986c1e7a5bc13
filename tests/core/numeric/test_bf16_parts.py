"""Do three bf16 numbers hold an fp32 number?"""

import pytest
import torch
from deepinfer_core.numeric import bf16_parts


def whole(part_NK: torch.Tensor, mixes: int) -> torch.Tensor:
    """The sum of the parts, smallest first, in fp64."""
    return sum(part_NK[i * mixes : (i + 1) * mixes].double() for i in (2, 1, 0))


def test_the_parts_add_up_to_every_bit(generator: torch.Generator) -> None:
    """Of numbers that are random in all 24 bits, over the exponents of weights."""
    weight_MK = torch.randn(24, 64, generator=generator) * torch.exp2(
        torch.randint(-60, 60, (24, 64), generator=generator).float()
    )
    assert bool((whole(bf16_parts(weight_MK, 80), 24) == weight_MK.double()).all())


@pytest.mark.parametrize("weight", [0.0, 1.0, -1.0, 1 + 2.0**-23, -(2 - 2.0**-23), 2.0**-100])
def test_single_numbers_come_back(weight: float) -> None:
    assert float(whole(bf16_parts(torch.tensor([[weight]]), 3), 1)) == weight


def test_rows_behind_the_parts_are_zero(generator: torch.Generator) -> None:
    part_NK = bf16_parts(torch.randn(5, 8, generator=generator), 16)
    assert part_NK.shape == (16, 8)
    assert part_NK.dtype is torch.bfloat16
    assert bool((part_NK[14] != 0).any())
    assert bool((part_NK[15] == 0).all())
