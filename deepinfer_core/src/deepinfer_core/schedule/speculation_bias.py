"""Do drafts survive as often as their confidences say, at present?

Confidences are fitted once, to some texts and one way of drawing; what is served now may be
something else. Where they promise too much, drafting looks better than it is. So what came out is
compared with what was said, and later estimates are corrected by the ratio: place by place. What
many drafts promise together is corrected once more, by how high each estimate is, since those that
are sure may be right where the doubtful are not. Only outcomes of earlier steps are used, so a
step's total does not depend on its own blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, islice
from operator import mul

__all__ = ["SurvivalBias"]

_KEPT_PER_BLOCK = 1 - 1 / 500
"""A block counts half after 346 more."""

_IMAGINARY_DRAFTS = 4.0
"""So many drafts survived just as was said, always: nothing known means nothing to correct, and
what is no longer verified is trusted again in time."""

_LEVELS = 10
"""Parts of the range from 0 to 1 that have a ratio each."""

_KEPT_IN_LEVELS, _IMAGINARY_IN_LEVELS = 1 - 1 / 2000, 2.0
"""There are more levels than places, so that each has fewer drafts."""


class SurvivalBias:
    """Running ratio of what survived to what was expected to.

    Args:
        drafts: of a whole block.
    """

    def __init__(self, drafts: int) -> None:
        self._places = _Ratios([_IMAGINARY_DRAFTS] * drafts)
        middles = [(level + 0.5) / _LEVELS for level in range(_LEVELS)]
        self._levels = _Ratios([_IMAGINARY_IN_LEVELS * middle for middle in middles])

    def add(self, said: Sequence[float], verified: int, accepted: int) -> None:
        """Take what became of a block.

        Args:
            said: survival of its drafts, as the confidences had it.
            verified: drafts of it that were.
            accepted: of these, how many in front were kept.
        """
        corrected = self.corrected(said[:verified])
        for place, (before, after) in enumerate(zip(said, corrected, strict=False)):
            self._places.add(place, before, place < accepted)
            self._levels.add(_level(after), after, place < accepted)

    def fade(self, blocks: int) -> None:
        """Forget a little, as so many blocks came, verified or not."""
        self._places.fade(_KEPT_PER_BLOCK**blocks)
        self._levels.fade(_KEPT_IN_LEVELS**blocks)

    @property
    def factors(self) -> tuple[float, ...]:
        """By which survival is multiplied, one for each draft."""
        return tuple(self._places.ratios)

    def corrected(self, said: Sequence[float]) -> tuple[float, ...]:
        """Survival of a block, place by place: never above 1, never rising along the block."""
        # Called for every sequence of every step: the built-in functions run over whole blocks.
        return tuple(
            islice(accumulate(map(mul, said, self._places.ratios), min, initial=1.0), 1, None)
        )

    def expected(self, corrected: Sequence[float]) -> tuple[float, ...]:
        """The same by how high each is: what drafts give together, not which are the best."""
        ratios = (*self._levels.ratios, self._levels.ratios[-1])  # 1 is of the highest level, too
        found = [one * ratios[int(_LEVELS * one)] for one in corrected]
        return tuple([one if one < 1.0 else 1.0 for one in found])


class _Ratios:
    """What came over what was said, by number.

    Args:
        imaginary: as much came as was said, for ever.
    """

    def __init__(self, imaginary: Sequence[float]) -> None:
        self._imaginary = imaginary
        self._said, self._came = [*imaginary], [*imaginary]
        self.ratios = [1.0] * len(imaginary)
        self._added: set[int] = set()
        """Numbers that something was added to since the last fading."""

    def add(self, number: int, said: float, came: bool) -> None:
        """Take one draft."""
        self._said[number] += said
        self._came[number] += came
        self._added.add(number)
        self.ratios[number] = self._came[number] / self._said[number]

    def fade(self, kept: float) -> None:
        """Keep so much of all but what is imaginary, and what is only known from earlier.

        A number that nothing was added to is trusted again, in time, if less came than was said.
        If more did it stays so: who is believed to promise little is not asked, and would be
        forgotten to be good.
        """
        for number, always in enumerate(self._imaginary):
            said, came = self._said[number], self._came[number]
            if number in self._added or came < said:
                self._said[number] = always + kept * (said - always)
                self._came[number] = always + kept * (came - always)
        self._added.clear()
        self.ratios = [came / said for came, said in zip(self._came, self._said, strict=True)]


def _level(survival: float) -> int:
    return min(int(_LEVELS * survival), _LEVELS - 1)
