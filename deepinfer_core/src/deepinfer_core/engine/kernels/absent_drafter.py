"""What stands in for a drafter when only what its rounds ask of the engine matters?"""

from __future__ import annotations

from deepinfer_core.engine.kernels.absent_device import AbsentDevice
from deepinfer_core.interfaces.component import Properties
from deepinfer_core.interfaces.drafter import (
    Choose,
    Drafter,
    DrafterCapabilities,
    DraftHost,
    DraftRound,
    Drafts,
)

__all__ = ["AbsentDrafter"]


class AbsentDrafter(Drafter):
    """Asks for what a drafter of these capabilities would ask for.

    Args:
        capabilities: of the drafter.
    """

    def __init__(self, capabilities: DrafterCapabilities) -> None:
        self._capabilities = capabilities
        self._host: DraftHost | None = None

    @property
    def properties(self) -> Properties:
        """It does nothing itself."""
        return AbsentDevice().properties

    @property
    def capabilities(self) -> DrafterCapabilities:
        """As given."""
        return self._capabilities

    def attach(self, host: DraftHost) -> None:
        """Take the draft network."""
        self._host = host

    def propose(self, wanted: DraftRound, choose: Choose) -> Drafts:
        """Run the network, if the drafter has any use for it."""
        host = self._host
        assert host is not None, "attach comes first"
        if host.block is None or not self._capabilities.uses_block:
            anchor_Q = wanted.anchor_token_Q
            return Drafts(token_Qn=anchor_Q.new_zeros((anchor_Q.shape[0], host.drafts)))
        return Drafts(token_Qn=host.block(wanted, count=host.drafts, choose=choose)[0])
