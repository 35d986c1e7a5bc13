"""How long does a decode step take, as a function of its rows?

A step is padded to the smallest size that holds it, so the curve is a staircase. A draft round is
paid for apart, because it can be left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["CostCurve", "StepCosts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostCurve:
    """Times of steps.

    Attributes:
        rows: sizes that were measured, ascending.
        milliseconds: what a step of each size takes; never less than a smaller one.
    """

    rows: tuple[int, ...]
    milliseconds: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse what is no curve.

        Raises:
            ValueError: sizes are not positive and ascending, or times not positive or falling, or
                not as many.
        """
        is_ascending = all(a < b for a, b in pairwise((0, *self.rows)))
        first_ms, last_ms = (*self.milliseconds, 0.0)[0], (0.0, *self.milliseconds)[-1]
        never_falls = all(a <= b for a, b in pairwise(self.milliseconds))
        are_times = never_falls and 0 < first_ms <= last_ms < float("inf")
        if not (is_ascending and are_times and len(self.rows) == len(self.milliseconds)):
            raise ValueError(f"asked for a cost curve, found {self.rows}, {self.milliseconds} ms")

    def place(self, rows: int) -> int:
        """Which size a step is padded to; ``len(self.rows)`` if it is larger than all."""
        return bisect_left(self.rows, rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """What steps take at present.

    Attributes:
        curve: steps without a draft round.
        drafter_ms: a round of as many sequences as there are now.
    """

    curve: CostCurve
    drafter_ms: float = 0.0

    def plain_ms(self, rows: int) -> float:
        """Time of a step without a draft round.

        Beyond the largest size, where only steps with prompts go, the last row's price is paid for
        each row more.
        """
        curve = self.curve
        place = curve.place(rows)
        if place < len(curve.rows):
            return curve.milliseconds[place]
        return curve.milliseconds[-1] + _last_price(curve) * (rows - curve.rows[-1])

    def drafting_ms(self, rows: int) -> float:
        """Time of a step and of the draft round behind it."""
        return self.plain_ms(rows) + self.drafter_ms

    def edges(self, fewest: int, most: int) -> Sequence[int]:
        """Numbers of rows from ``fewest`` to ``most`` behind which a row more costs something.

        None is larger than the largest measured size, unless ``fewest`` is: then they are all.
        """
        sizes = self.curve.rows
        if fewest > sizes[-1]:
            return range(fewest, most + 1)
        most = min(most, sizes[-1])
        return (*sizes[self.curve.place(fewest) : self.curve.place(most)], most)


def _last_price(curve: CostCurve) -> float:
    if len(curve.rows) == 1:
        return curve.milliseconds[0] / curve.rows[0]
    rise_ms = curve.milliseconds[-1] - curve.milliseconds[-2]
    return rise_ms / (curve.rows[-1] - curve.rows[-2])
