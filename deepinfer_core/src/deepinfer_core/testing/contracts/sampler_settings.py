"""How does a test write down what a row of the sampler is asked for?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from deepinfer_core.interfaces.sampler import LogitsRules, SamplerRows

__all__ = ["Settings", "sampler_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One row's settings; the defaults keep everything.

    Attributes:
        bias: what is added to the logit of a token.
        seen: of each token before the row, how often it stands in the output.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    seed: int = 1
    position: int = 0
    forced: int = -1
    bias: Mapping[int, float] = field(default_factory=dict)
    seen: Mapping[int, int] = field(default_factory=dict)
    repetition: float = 1.0
    frequency: float = 0.0
    presence: float = 0.0

    @property
    def has_rules(self) -> bool:
        """Whether bias or penalties may change a logit."""
        return bool(self.bias or self.seen)


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
        rules=_rules(settings, device) if any(row.has_rules for row in settings) else None,
    )


def _rules(settings: list[Settings], device: str) -> LogitsRules:
    def table(rows: list[list[float]], dtype: torch.dtype, filler: float) -> torch.Tensor:
        longest = max(len(row) for row in rows)
        # Padding stands at both ends: samplers may not take it for the end of a list.
        whole = [[filler, *row, *[filler] * (longest - len(row))] for row in rows]
        return torch.tensor(whole, dtype=dtype, device=device)

    def column(name: str) -> torch.Tensor:
        values = [getattr(row, name) for row in settings]
        return torch.tensor(values, dtype=torch.float32, device=device)

    return LogitsRules(
        bias_token_RB=table([[*row.bias] for row in settings], torch.int64, -1),
        bias_RB=table([[*row.bias.values()] for row in settings], torch.float32, 7.0),
        seen_token_RN=table([[*row.seen] for row in settings], torch.int64, -1),
        output_count_RN=table([[*row.seen.values()] for row in settings], torch.int64, 5),
        repetition_R=column("repetition"),
        frequency_R=column("frequency"),
        presence_R=column("presence"),
    )
