"""How does a drafter run the draft network of a checkpoint?"""

from __future__ import annotations

import torch

from deepinfer_core.cache.storage import Caches
from deepinfer_core.interfaces.drafter import Choose, DraftBlock, DraftRound
from deepinfer_core.model import drafter as network
from deepinfer_core.model.backbone import TextModel

__all__ = ["draft_block"]


def draft_block(model: TextModel, caches: Caches) -> DraftBlock | None:
    """The draft network of a model over an engine's caches; None if it has none."""
    drafter = model.drafter
    if drafter is None:
        return None

    def block(
        wanted: DraftRound, *, count: int, choose: Choose
    ) -> tuple[torch.Tensor, torch.Tensor]:
        asked = network.DraftRound(
            anchor_token_Q=wanted.anchor_token_Q,
            accepted_position_Q=wanted.accepted_position_Q,
            state_slot_Q=wanted.state_slot_Q,
            first_position_Q=wanted.first_position_Q,
            count=count,
        )
        return drafter.draft(asked, caches, choose)

    return block
