"""Which budgets of drafts does a test try that no planner would give?"""

from __future__ import annotations

import random
from collections.abc import Sequence

from deepinfer_core.interfaces.draft_planner import DraftOutcome, DraftPlanner, DraftView

__all__ = ["RandomBudget"]


class RandomBudget(DraftPlanner):
    """Any number of drafts of any sequence, a round behind two steps of three, and short rests.

    Args:
        seed: of all choices.
        shares: factors of survival by which the device may share out rows; None: it may not.

    Attributes:
        verified: drafts so far.
        accepted: of these.
        by_count: how often so many drafts of a sequence were accepted.
    """

    def __init__(self, seed: int, shares: tuple[float, ...] | None = None) -> None:
        self._draw = random.Random(seed)
        self._shares = shares
        self._drafts_next = True
        self.verified = 0
        self.accepted = 0
        self.by_count: dict[int, int] = {}

    def rows(self, views: Sequence[DraftView], *, other_rows: int) -> Sequence[int]:
        """Anything that is allowed, mostly much."""
        draw = self._draw
        self._drafts_next = draw.random() < 2 / 3
        return [1 + max(draw.randint(0, one.drafts), draw.randint(0, one.drafts)) for one in views]

    def drafts_next(self) -> bool:
        """Mostly."""
        return self._drafts_next

    def rest(self) -> int:
        """Three steps at most."""
        return self._draw.randint(0, 3)

    def shares(self) -> tuple[float, ...] | None:
        """Always or never."""
        return self._shares

    def learn(self, outcomes: Sequence[DraftOutcome]) -> None:
        """Count."""
        for outcome in outcomes:
            self.verified += outcome.verified
            self.accepted += outcome.accepted
            self.by_count[outcome.accepted] = self.by_count.get(outcome.accepted, 0) + 1
