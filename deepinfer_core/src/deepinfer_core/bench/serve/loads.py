"""Who asks when?

``closed``: so many users, each of whom asks again as soon as the answer is there; a slow service is
asked less. ``open``: visitors come at random times, so many a second on average whatever the
service does, which is what the world outside does; latencies count from the moment at which a
request was due, so that a generator or a service that falls behind cannot hide it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from deepinfer_core.bench.serve.exchange import Exchange
from deepinfer_core.bench.serve.scripts import Script

__all__ = ["Level", "Visit", "arrival_times", "run_closed", "run_open"]

Visit = Callable[[Script, float], Awaitable[list[Exchange]]]
"""(script, when its first request is due) to its exchanges."""

_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """How much is asked.

    Attributes:
        kind: as above.
        value: users, or visitors a second.
    """

    kind: Literal["closed", "open"]
    value: float

    @property
    def text(self) -> str:
        """For names: ``users=8`` or ``rate=0.5``."""
        return f"{'users' if self.kind == 'closed' else 'rate'}={self.value:g}"


def arrival_times(count: int, rate: float, seed: int) -> list[float]:
    """Times of a Poisson process, in seconds from its start; the first one is 0.

    Args:
        count: of arrivals, at least one.
        rate: arrivals a second on average.
        seed: the same one gives the same times.
    """
    source = random.Random(seed)
    times_s = [0.0]
    while len(times_s) < count:
        times_s.append(times_s[-1] + source.expovariate(rate))
    return times_s


async def run_closed(scripts: list[Script], users: int, visit: Visit) -> list[Exchange]:
    """Each user takes the next script when its last one is over, until there is none.

    After a failure a user stays away as long as the service asks for, or a tenth of a second.
    """
    waiting = iter(scripts)
    found: list[Exchange] = []
    await asyncio.gather(*(_user(waiting, visit, found) for _ in range(users)))
    return found


async def _user(waiting: Iterator[Script], visit: Visit, found: list[Exchange]) -> None:
    for script in waiting:
        exchanges = await visit(script, time.perf_counter())
        found += exchanges
        if exchanges[-1].failure:
            await asyncio.sleep(min(exchanges[-1].retry_after_s or _PAUSE_S, _LONGEST_PAUSE_S))


async def run_open(scripts: list[Script], rate: float, seed: int, visit: Visit) -> list[Exchange]:
    """A visitor comes for each script; later turns of it follow their answers at once."""
    began_s = time.perf_counter()
    visits = []
    for script, after_s in zip(scripts, arrival_times(len(scripts), rate, seed), strict=True):
        due_s = began_s + after_s
        await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
        visits.append(asyncio.create_task(_visit(visit, script, due_s)))
    return [exchange for exchanges in await asyncio.gather(*visits) for exchange in exchanges]


async def _visit(visit: Visit, script: Script, due_s: float) -> list[Exchange]:
    return await visit(script, due_s)
