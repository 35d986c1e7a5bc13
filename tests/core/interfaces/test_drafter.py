"""What does a drafter do that says nothing about it?"""

import pytest
import torch
from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.component import Properties
from deepinfer_core.interfaces.draft_planner import StepTimer
from deepinfer_core.interfaces.drafter import (
    Choose,
    Drafter,
    DrafterCapabilities,
    DraftHost,
    DraftRound,
    Drafts,
)


class Mute(Drafter):
    """Never has a draft."""

    @property
    def properties(self) -> Properties:
        return Properties(batch_invariant="always", deterministic="always", graph_safe="always")

    @property
    def capabilities(self) -> DrafterCapabilities:
        return DrafterCapabilities(max_drafts=1, law="one_hot")

    def propose(self, wanted: DraftRound, choose: Choose) -> Drafts:
        return Drafts(token_Qn=torch.full((wanted.anchor_token_Q.shape[0], 1), -1))


class Silent(StepTimer):
    """Never asked."""


def test_a_drafter_without_a_planner_refuses_planned_budgets_by_name() -> None:
    host = DraftHost(
        drafts=1, vocabulary=8, max_sequences=1, max_tokens=8, rule="match",
        torch_device=torch.device("cpu"),
    )  # fmt: skip
    with pytest.raises(NotSupported, match="found a drafter that plans nothing"):
        Mute().planner(host, Silent())
