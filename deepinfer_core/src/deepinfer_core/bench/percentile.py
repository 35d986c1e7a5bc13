"""Which value do so many per cent of the measurements not exceed?"""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["PERCENTS", "percentile"]

PERCENTS = (50, 90, 99)
"""Those that reports show."""


def percentile(values: Sequence[float], percent: int) -> float:
    """The nearest-rank percentile: always one of the values, never one in between.

    Args:
        values: at least one, in any order.
        percent: 1 to 100.
    """
    place = math.ceil(len(values) * percent / 100)
    return sorted(values)[place - 1]
