"""How does a tensor core multiply by fp32 weights? As three weights of bf16.

A bf16 number has 8 bits and an fp32 number has 24, so three of the former hold one of the latter;
products of bf16 numbers are exact in fp32.

Shapes: M mixes, K width, N = 3 * M in whole columns of a matrix instruction.
"""

from __future__ import annotations

import torch

__all__ = ["bf16_parts"]

_PARTS = 3


def bf16_parts(weight_MK: torch.Tensor, columns: int) -> torch.Tensor:
    """The parts of all rows, largest first, one below the other: bf16 [N, K].

    The sum of a row's parts is the row, unless its bits reach below 2^-133, where bf16 ends.

    Args:
        weight_MK: fp32.
        columns: N, at least 3 * M; rows behind the parts are zero.
    """
    mixes, width = weight_MK.shape
    part_NK = torch.zeros(columns, width, dtype=torch.bfloat16, device=weight_MK.device)
    rest_MK = weight_MK
    for part in range(_PARTS):
        part_MK = rest_MK.bfloat16()
        part_NK[part * mixes : (part + 1) * mixes] = part_MK
        rest_MK = rest_MK - part_MK.float()
    return part_NK
