"""Who goes before whom?

Priority is a head start: a request of priority p ranks as if it had arrived p * ``boost_s`` seconds
earlier than it did. Ranks never change, so queues stay sorted, and nobody starves:

* Let the priorities lie between ``lowest`` and ``highest``. A request that arrives at t with
  priority p ranks before every request that arrives after t + (``highest`` - p) * ``boost_s``, its
  *head-start window*. So a finite number N of requests can ever go before it: those that wait when
  it arrives, and those that arrive within the window.
* Let k seats serve in order of rank and let each request hold its seat for at most c seconds. While
  the request waits, every seat is busy with one of those N or with one of the at most k that had a
  seat when it arrived. It therefore waits at most (N + k) * c / k.

Under strict priorities N has no bound. Preemption can make a seat's work be done twice; what then
holds is in ``docs/scheduling.md``.
"""

from __future__ import annotations

import math
from typing import TypeAlias

__all__ = ["Rank", "rank_of"]

Rank: TypeAlias = tuple[float, int]
"""Virtual arrival in seconds, then the engine's number; the smaller goes first."""


def rank_of(arrival_s: float, priority: int, sequence_id: int, boost_s: float) -> Rank:
    """The place of a request in the order; no two requests of an engine have the same.

    Args:
        arrival_s: monotonic clock.
        priority: larger is more urgent, 0 is usual, negative gives way.
        sequence_id: the engine's number; decides between equal virtual arrivals.
        boost_s: head start of one step of priority, not negative. 0 ignores priorities.

    Raises:
        ValueError: the virtual arrival is not finite, or ``boost_s`` is negative.
    """
    virtual_arrival_s = arrival_s - priority * boost_s
    if not math.isfinite(virtual_arrival_s) or boost_s < 0:
        raise ValueError(
            f"a rank needs a finite arrival and a head start of 0 s or more, found arrival "
            f"{arrival_s} s and head start {boost_s} s"
        )
    return (virtual_arrival_s, sequence_id)
