"""Which drafter does a test use that knows the answers, and errs when it is told to?

It waits for the device, which a drafter for use must not do.

Shapes: Q sequences, n drafts of each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

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

__all__ = ["KnowingDrafter"]


class KnowingDrafter(Drafter):
    """Drafts what known texts go on with, or something else.

    Args:
        texts: prompts with their answers.
        right_share: of the drafts that are right.
        none_share: of the places where a round ends early.
    """

    def __init__(
        self,
        texts: Iterable[Sequence[int]],
        *,
        right_share: float = 0.75,
        none_share: float = 0.05,
    ) -> None:
        self._texts = [tuple(text) for text in texts]
        self._right_share = right_share
        self._none_share = none_share
        self._host: DraftHost | None = None
        self.rounds = 0

    @property
    def properties(self) -> Properties:
        """A draft depends on the text alone."""
        return Properties(batch_invariant="always", deterministic="always", graph_safe="never")

    @property
    def capabilities(self) -> DrafterCapabilities:
        """Names tokens, and reads all that a sequence has."""
        return DrafterCapabilities(max_drafts=64, law="one_hot", reads_tokens=True)

    def attach(self, host: DraftHost) -> None:
        """Note the sizes."""
        self._host = host

    def propose(self, wanted: DraftRound, choose: Choose) -> Drafts:
        """Look up every text."""
        assert self._host is not None
        assert wanted.token_SL is not None
        self.rounds += 1
        drafts = []
        ends = (wanted.accepted_position_Q + 2).tolist()
        for place, end in zip(wanted.place_Q.tolist(), ends, strict=True):
            known = tuple(wanted.token_SL[place, :end].tolist()) if place else ()
            drafts.append(self._drafts(known, self._host))
        return Drafts(token_Qn=torch.tensor(drafts, device=wanted.place_Q.device))

    def _drafts(self, known: tuple[int, ...], host: DraftHost) -> list[int]:
        text = next((one for one in self._texts if one[: len(known)] == known), known)
        drafts: list[int] = []
        for number, token in enumerate(text[len(known) : len(known) + host.drafts]):
            luck = _luck(known, number)
            if luck > 1 - self._none_share:
                break
            drafts.append(token if luck < self._right_share else (token + 1) % host.vocabulary)
        return drafts + [-1] * (host.drafts - len(drafts))


def _luck(known: tuple[int, ...], number: int) -> float:
    """A number from 0 to 1 that belongs to a text and a place."""
    digest = hashlib.blake2b(f"{number}:{known}".encode(), digest_size=4).digest()
    return int.from_bytes(digest) / 2**32
