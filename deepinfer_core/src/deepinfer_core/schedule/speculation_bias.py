"""Do drafts survive as often as their confidences say, at present?

Confidences are fitted once, to some texts and one way of drawing; what is served now may be
something else. Where they promise too much, drafting looks better than it is. So what came out is
compared with what was said, place by place, and later estimates are corrected by the ratio. Only
outcomes of earlier steps are used, so a step's total does not depend on its own blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

__all__ = ["SurvivalBias"]

_KEPT_PER_BLOCK = 1 - 1 / 500
"""A block counts half after 346 more."""

_IMAGINARY_DRAFTS = 4.0
"""So many drafts survived just as was said, always: nothing known means nothing to correct, and
what is no longer verified is trusted again in time."""


class SurvivalBias:
    """Running ratio of what survived to what was expected to.

    Args:
        drafts: of a whole block.
    """

    def __init__(self, drafts: int) -> None:
        self._said = [_IMAGINARY_DRAFTS] * drafts
        self._came = [_IMAGINARY_DRAFTS] * drafts

    def add(self, said: Sequence[float], verified: int, accepted: int) -> None:
        """Take what became of a block.

        Args:
            said: survival of its drafts, as the confidences had it.
            verified: drafts of it that were.
            accepted: of these, how many in front were kept.
        """
        for place, expected in enumerate(said[:verified]):
            self._said[place] += expected
            self._came[place] += place < accepted

    def fade(self, blocks: int) -> None:
        """Forget a little, as so many blocks came, verified or not."""
        kept = _KEPT_PER_BLOCK**blocks
        for sums in (self._said, self._came):
            sums[:] = [_IMAGINARY_DRAFTS + kept * (one - _IMAGINARY_DRAFTS) for one in sums]

    @property
    def factors(self) -> tuple[float, ...]:
        """By which survival is multiplied, one for each draft."""
        return tuple(came / said for came, said in zip(self._came, self._said, strict=True))

    def corrected(self, said: Sequence[float]) -> tuple[float, ...]:
        """Survival as it is to be expected: never above 1, never rising along the block."""
        ratios = zip(said, self._came, self._said, strict=False)
        return tuple(accumulate((min(1.0, s * came / of) for s, came, of in ratios), min))
