"""How does a test write down what a row of the sampler is asked for?"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from deepinfer_core.interfaces.sampler import SamplerRows

__all__ = ["Settings", "sampler_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One row's settings; the defaults keep everything."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    seed: int = 1
    position: int = 0
    forced: int = -1


def sampler_rows(
    settings: list[Settings], allowed: list[list[int]] | None, device: str
) -> SamplerRows:
    """Settings as tensors; ``allowed`` lists the tokens of each row."""

    def column(name: str, dtype: torch.dtype) -> torch.Tensor:
        values = [getattr(row, name) for row in settings]
        return torch.tensor(values, dtype=dtype, device=device)

    mask = None
    if allowed is not None:
        words = 1 + max((token for tokens in allowed for token in tokens), default=0) // 32
        bits = torch.zeros(len(allowed), words, dtype=torch.int64)
        for row, tokens in enumerate(allowed):
            for token in tokens:
                bits[row, token // 32] |= 1 << (token % 32)
        mask = bits.to(torch.int32).to(device)
    return SamplerRows(
        temperature_R=column("temperature", torch.float32),
        top_p_R=column("top_p", torch.float32),
        top_k_R=column("top_k", torch.int64),
        min_p_R=column("min_p", torch.float32),
        seed_R=column("seed", torch.int64),
        position_R=column("position", torch.int64),
        forced_R=column("forced", torch.int64),
        allowed_RW=mask,
    )
