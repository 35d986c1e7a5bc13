"""Which drafter does a test use that runs the draft network of a model as it is?"""

from __future__ import annotations

from deepinfer_core.interfaces.component import Properties
from deepinfer_core.interfaces.drafter import (
    Choose,
    Drafter,
    DrafterCapabilities,
    DraftHost,
    DraftRound,
    Drafts,
)

__all__ = ["BlockDrafter"]


class BlockDrafter(Drafter):
    """Runs the draft network as it is."""

    def __init__(self) -> None:
        self.host: DraftHost | None = None

    @property
    def properties(self) -> Properties:
        """It computes with the components of the model."""
        return Properties(batch_invariant="always", deterministic="always", graph_safe="always")

    @property
    def capabilities(self) -> DrafterCapabilities:
        """Draws as many drafts as networks are trained for."""
        return DrafterCapabilities(max_drafts=5, law="full", has_confidence=True, uses_block=True)

    def attach(self, host: DraftHost) -> None:
        """Keep what it is told."""
        self.host = host

    def propose(self, wanted: DraftRound, choose: Choose) -> Drafts:
        """Run the network."""
        assert self.host is not None
        assert self.host.block is not None
        token_Qn, logit_Qn = self.host.block(wanted, count=self.host.drafts, choose=choose)
        confidence_Qn = logit_Qn.float().sigmoid()
        return Drafts(token_Qn=token_Qn, confidence_Qn=confidence_Qn, raw_Qn=logit_Qn.float())
