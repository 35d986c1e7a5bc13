"""How many times as fast is one way as another, and how sure is that?

Both ways take turns, so there is a ratio for each round; the logs of the ratios are judged as the
Wilcoxon signed-rank test does. The estimate is the Hodges-Lehmann one, the median of the means of
all pairs of rounds (each with itself, too), and the interval is that of the same means, whose ranks
are known exactly for any number of rounds. It supposes that rounds are independent and that a
round is disturbed as often to one side as to the other, which turns in a changing order are, and
nothing about how much. So bursts of other programs, which may double a sum, move the estimate
little as long as they hit fewer than 29 of 100 rounds, and make the interval hardly wider as long
as fewer than one in ten is hit to the same side; where more are it is wide, as it should be.

What falls into few rounds is a burst for it, good or bad. Rare work of a way must be counted
besides.
"""

from collections.abc import Sequence
from math import exp, log
from statistics import median
from typing import NamedTuple

LEVEL = 0.99
FEWEST = 8
"""Rounds; of fewer no interval is 99 % sure."""


class Ratio(NamedTuple):
    """How many times as fast.

    Attributes:
        value: the estimate.
        low: the least that it may be.
        high: the most that it may be.
    """

    value: float
    low: float
    high: float

    def rounded(self) -> dict[str, object]:
        """For a record."""
        return {"ratio": round(self.value, 4), "between": [round(self.low, 4), round(self.high, 4)]}


def ratio(one_s: Sequence[float], other_s: Sequence[float]) -> Ratio:
    """How many times as fast the first is, and between which ends that lies with 99 %.

    Args:
        one_s: times by round.
        other_s: the same of the other, in the same rounds.

    Raises:
        ValueError: there are fewer than 8 rounds, or not as many of both.
    """
    logs = [log(other / one) for one, other in zip(one_s, other_s, strict=True)]
    if len(logs) < FEWEST:
        raise ValueError(f"{len(logs)} rounds, and {FEWEST} are needed")
    means = sorted((a + b) / 2 for place, a in enumerate(logs) for b in logs[place:])
    cut = beyond(len(logs), (1 - LEVEL) / 2)
    return Ratio(*map(exp, (median(means), means[cut], means[-1 - cut])))


def beyond(rounds: int, chance: float) -> int:
    """How many of the sorted means lie beyond each end of an interval.

    Args:
        rounds: from which the means are.
        chance: that the truth lies beyond one end; it is no more.
    """
    # In how many of the 2 ** rounds ways to choose signs do the ranks of those above sum to this?
    ways = [1]
    for rank in range(1, rounds + 1):
        longer = ways + [0] * rank
        ways = [more + less for more, less in zip(longer, [0] * rank + ways, strict=True)]
    count, sum_of_ways = 0, ways[0]
    while sum_of_ways + ways[count + 1] <= chance * 2**rounds:
        count += 1
        sum_of_ways += ways[count]
    return count
