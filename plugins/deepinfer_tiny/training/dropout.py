"""Which values are dropped while training?"""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["Dropout", "drop"]

Tensor = torch.Tensor


def drop(x: Tensor, noise: Tensor, rate: Tensor) -> Tensor:
    """Inverted dropout with uniform ``noise`` in [0, 1); rate 0 is the identity."""
    return x * ((noise >= rate) / (1.0 - rate)).to(x.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropout:
    """Dropout rates as scalar tensors, so that a captured graph can change them."""

    residual: Tensor
    engram: Tensor

    @classmethod
    def none(cls, device: str = "cpu") -> Dropout:
        """No dropout."""
        zero = torch.zeros((), device=device)
        return cls(residual=zero, engram=zero)
