"""What is to be expected of a draft about which nothing is known?

The mean of what earlier blocks had, recent ones first. It stands in where a drafter has no
confidences, where a block is too new for the host to have them, and where no round was run.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

__all__ = ["MeanSurvival"]

_KEPT_PER_BLOCK = 1 - 1 / 500
"""A block counts half after 346 more, so a few rounds of many sequences say what is served now."""


class MeanSurvival:
    """Running mean of survival by draft.

    A block counts for a draft by how likely the draft is *reached*, so that the means multiply.

    Args:
        drafts: of a whole block.
    """

    def __init__(self, drafts: int) -> None:
        # One imaginary block in which all was accepted: nothing known means 1.
        self._reached = [1.0] * drafts
        self._survived = [1.0] * drafts

    def add_rates(self, survival: Sequence[float]) -> None:
        """Take the estimates that a drafter gave for a block."""
        reached = (1.0, *survival[:-1])
        for place, (weight, right) in enumerate(zip(reached, survival, strict=True)):
            self._reached[place] = self._reached[place] * _KEPT_PER_BLOCK + weight
            self._survived[place] = self._survived[place] * _KEPT_PER_BLOCK + right

    @property
    def is_known(self) -> bool:
        """Whether there was a block."""
        return self._reached[0] > 1.0

    @property
    def rates(self) -> tuple[float, ...]:
        """Survival by draft; all 1 before the first block."""
        each = (s / r for s, r in zip(self._survived, self._reached, strict=True))
        return tuple(accumulate(each, mul))
