"""Where does each token stand: document, position, visible entries, rotation?

Shapes: B rows of the batch, T tokens a row, E compressed entries, R rotated pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from .config import ModelConfig

__all__ = ["Batch", "Turns", "rotary_frequencies"]

Tensor = torch.Tensor


def rotary_frequencies(config: ModelConfig, compressed: bool) -> Tensor:
    """Frequencies fp32 [R]; the compressed set has base 160000 with YaRN at all positions."""
    width = config.qk_rope_head_dim
    exponent = torch.arange(0, width, 2, dtype=torch.float32) / width
    if not compressed:
        return 1.0 / config.rope_theta**exponent
    base = config.compress_rope_theta
    plain = 1.0 / base**exponent

    def dimension(turns: int) -> float:
        span = config.yarn_original_tokens / (2 * math.pi * turns)
        return width * math.log(span) / (2 * math.log(base))

    low, high = max(math.floor(dimension(32)), 0), min(math.ceil(dimension(1)), width - 1)
    ramp = (torch.arange(width // 2) - low) / (max(high - low, 0) or 0.001)
    ramp = ramp.clamp(0, 1)
    return plain / config.yarn_factor * ramp + plain * (1 - ramp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """Cosine and sine [N, R] of each token for both frequency sets."""

    plain: tuple[Tensor, Tensor]
    compressed: tuple[Tensor, Tensor]

    @classmethod
    def at(cls, frequencies: tuple[Tensor, Tensor], position: Tensor) -> Turns:
        """Tables for positions of any shape; R is appended to it.

        Args:
            frequencies: plain and compressed, on the device of ``position``.
            position: token positions within their documents.
        """
        found = []
        for frequency in frequencies:
            angle = position.float().unsqueeze(-1) * frequency
            found.append((angle.cos(), angle.sin()))
        return cls(plain=found[0], compressed=found[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Token rows and what follows from them."""

    tokens_BT: Tensor
    doc_BT: Tensor
    position_BT: Tensor

    @classmethod
    def packed(cls, tokens_BT: Tensor, bos: int) -> Batch:
        """Documents begin at each BOS."""
        start = tokens_BT == bos
        order = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        first = torch.where(start, order, 0).cummax(1).values
        return cls(tokens_BT=tokens_BT, doc_BT=start.cumsum(1), position_BT=order - first)

    def visible(self, ratio: int) -> Tensor:
        """Boolean [B, T, T / ratio]: the entry is complete and of the query's document."""
        order = torch.arange(self.tokens_BT.shape[1], device=self.tokens_BT.device)
        complete = order[ratio - 1 :: ratio]
        same = self.doc_BT.unsqueeze(-1) == self.doc_BT[:, ::ratio].unsqueeze(1)
        return same & (complete <= order.unsqueeze(-1))
