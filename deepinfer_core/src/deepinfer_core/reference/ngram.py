"""Which tokens followed the last time that the text had its present end?

Prompt lookup: the last few tokens of a text are looked for earlier in it, and what stands behind
them there is the draft. Of all places the one with the longest common end is taken, of equal ones
the last. Where the place is so near that the text ends first, it is taken to go on in the same way.

Nothing is learnt and no network runs, so drafts cost nearly nothing; they are good where a text
repeats itself: quotations, code that is edited, lists, tables.

Shapes: Q sequences, n drafts, S places, L longest text, W tokens that are searched.

Source: prompt lookup decoding (Saxena, 2023).
"""

from __future__ import annotations

from typing import Protocol

import torch

from deepinfer_core.interfaces.component import Properties
from deepinfer_core.interfaces.drafter import (
    Choose,
    Drafter,
    DrafterCapabilities,
    DraftHost,
    DraftRound,
    Drafts,
)
from deepinfer_core.plugin import BuildContext

__all__ = ["MOST_DRAFTS", "NgramDrafter", "build"]

MOST_DRAFTS = 64
"""More than any text is worth verifying."""


class NgramOptions(Protocol):
    """What the configuration says; see ``config.components.NgramOptions``."""

    @property
    def shortest(self) -> int:
        """Least number of tokens at the end of a text that must stand earlier in it too."""

    @property
    def longest(self) -> int:
        """Most that are compared."""

    @property
    def searched_tokens(self) -> int:
        """How far back they are looked for."""


class NgramDrafter(Drafter):
    """Looks tokens up in the text itself.

    Args:
        options: how long a common end is asked for, and how far back it is looked for.
    """

    def __init__(self, options: NgramOptions) -> None:
        self.options = options
        self._drafts = 0

    @property
    def properties(self) -> Properties:
        """A draft depends on the text alone, and nobody waits for the device."""
        return Properties(batch_invariant="always", deterministic="always", graph_safe="always")

    @property
    def capabilities(self) -> DrafterCapabilities:
        """Names tokens, and reads all that a sequence has."""
        return DrafterCapabilities(max_drafts=MOST_DRAFTS, law="one_hot", reads_tokens=True)

    def attach(self, host: DraftHost) -> None:
        """Note how many drafts are wanted."""
        self._drafts = host.drafts

    def propose(self, wanted: DraftRound, choose: Choose) -> Drafts:
        """Look up every text; see ``Drafter``."""
        assert wanted.token_SL is not None
        shortest, longest = self.options.shortest, self.options.longest
        width = min(self.options.searched_tokens, wanted.token_SL.shape[1])
        device = wanted.place_Q.device
        last_Q1 = (wanted.accepted_position_Q + 1)[:, None]
        place_Q1 = wanted.place_Q[:, None]

        # Position of each candidate's last token; what stands there is compared from behind.
        end_QW = last_Q1 - width + torch.arange(width, device=device)
        common_QW = torch.zeros_like(end_QW)
        is_common_QW = torch.ones_like(end_QW, dtype=torch.bool)
        for back in range(longest):
            token_QW = wanted.token_SL[place_Q1, (end_QW - back).clamp_min(0)]
            own_Q1 = wanted.token_SL[place_Q1, (last_Q1 - back).clamp_min(0)]
            is_common_QW &= (token_QW == own_Q1) & (end_QW >= back)
            common_QW += is_common_QW
        found_Q = (common_QW * width + torch.arange(width, device=device)).argmax(-1)
        length_Q = common_QW.gather(1, found_Q[:, None])[:, 0]
        first_Q1 = end_QW.gather(1, found_Q[:, None]) + 1

        offset_n = torch.arange(self._drafts, device=device)
        # Behind the anchor, which is the last token, a text goes on as it did from ``first``.
        position_Qn = first_Q1 + offset_n % (last_Q1 + 1 - first_Q1).clamp_min(1)
        token_Qn = wanted.token_SL[place_Q1, position_Qn.clamp_min(0)]
        return Drafts(token_Qn=token_Qn.masked_fill((length_Q < shortest)[:, None], -1))


def build(options: NgramOptions, context: BuildContext) -> NgramDrafter:
    """Build the component."""
    return NgramDrafter(options)
