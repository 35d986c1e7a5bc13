"""How does the text model turn the rows of a step into logits?"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from deepinfer_core.cache.storage import Caches
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.model.step import StepInputs

__all__ = ["Probe", "TextModel"]

Probe = Callable[[str, torch.Tensor], None]
"""Receives intermediate values by name, e.g. ``layers.3.attn.pre``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextModel:
    """The V4.1 text model with its drafter."""

    config: ModelConfig
    parts: ModelParts

    def forward(
        self, step: StepInputs, caches: Caches, *, probe: Probe | None = None
    ) -> torch.Tensor:
        """Run one step: write the caches, return the logits [R, V] of ``step.sample_row_R``."""
        raise NotImplementedError

    def draft(
        self,
        anchor_token_Q: torch.Tensor,
        anchor_position_Q: torch.Tensor,
        state_slot_Q: torch.Tensor,
        caches: Caches,
        *,
        count: int = 5,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Draft ``count`` tokens: ids [Q, n] and confidences [Q, n]."""
        raise NotImplementedError
