"""What does a service show under one load after the other?

First one user alone asks a few times: what comes back is what the figures of all loads are compared
with, and a service that answers nothing is found out before the first load. Before each load, that
of the user alone included, as many users ask once each without being counted: a service may compile
something for so many of them.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from deepinfer_core.bench.serve.exchange import Exchange
from deepinfer_core.bench.serve.headroom import Headroom, Watch
from deepinfer_core.bench.serve.loads import Level, run_closed, run_open
from deepinfer_core.bench.serve.scripts import Script
from deepinfer_core.bench.serve.visitor import Visitor
from deepinfer_core.errors import EngineError

__all__ = ["LevelResult", "Plan", "requests_of", "sweep"]

_LEAST_REQUESTS = 32
_REQUESTS_PER_USER = 8
_OPEN_LOAD_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which loads.

    Attributes:
        levels: in order.
        requests: of each load; None: 8 of each user or those of half a minute, at least 32.
        alone: requests of the user who is alone.
        seed: of the order of the scripts and of arrivals.
    """

    levels: tuple[Level, ...]
    requests: int | None
    alone: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelResult:
    """What one load showed.

    Attributes:
        level: how much was asked.
        exchanges: all requests.
        elapsed_s: from the first request until the last answer ended.
        headroom: of the generator.
    """

    level: Level
    exchanges: Sequence[Exchange]
    elapsed_s: float
    headroom: Headroom

    @property
    def good(self) -> list[Exchange]:
        """Those that went well."""
        return [exchange for exchange in self.exchanges if not exchange.failure]


def requests_of(plan: Plan, level: Level) -> int:
    """How many requests a load has at least; the last script is asked to its end."""
    if plan.requests is not None:
        return plan.requests
    per_value = _REQUESTS_PER_USER if level.kind == "closed" else _OPEN_LOAD_S
    return max(_LEAST_REQUESTS, math.ceil(per_value * level.value))


async def sweep(
    plan: Plan,
    scripts: Sequence[Script],
    visitor: Visitor,
    advance: Callable[[], None] = lambda: None,
) -> tuple[LevelResult, list[LevelResult]]:
    """Run all loads.

    Args:
        plan: which ones.
        scripts: to take in a random order, and again from the start where there are too few.
        visitor: asks.
        advance: called after each load.

    Returns:
        What the user alone showed, and one result a load.

    Raises:
        EngineError: no request of the user alone went well.
    """
    order = random.Random(plan.seed).sample(list(scripts), len(scripts))
    alone_level = Level(kind="closed", value=1)
    alone = await _run(plan, alone_level, _taken(order, plan.alone), visitor)
    if not alone.good:
        first = alone.exchanges[0]
        raise EngineError(
            f"no request was answered: {first.failure}, {first.detail}",
            hint="is this a service with the endpoint and the model that were asked for?",
        )
    advance()
    results = []
    for level in plan.levels:
        chosen = _taken(order, requests_of(plan, level))
        results.append(await _run(plan, level, chosen, visitor))
        advance()
    return alone, results


async def _run(plan: Plan, level: Level, chosen: list[Script], visitor: Visitor) -> LevelResult:
    visitor.next_load()
    starters = math.ceil(level.value)
    await run_closed(_openings(chosen, starters), starters, visitor.visit)
    visitor.next_load()
    if visitor.cache == "warm":
        for script in {id(script): script for script in chosen}.values():
            await visitor.acquaint(script)
    began_s = time.perf_counter()
    async with Watch() as watch:
        if level.kind == "closed":
            exchanges = await run_closed(chosen, round(level.value), visitor.visit)
        else:
            exchanges = await run_open(chosen, level.value, plan.seed, visitor.visit)
        elapsed_s = time.perf_counter() - began_s
    return LevelResult(level=level, exchanges=exchanges, elapsed_s=elapsed_s, headroom=watch.found)


def _openings(scripts: Sequence[Script], count: int) -> list[Script]:
    openings = (replace(script, turns=script.turns[:1]) for script in itertools.cycle(scripts))
    return list(itertools.islice(openings, count))


def _taken(order: Sequence[Script], requests: int) -> list[Script]:
    """Scripts in order, again and again, until they have so many requests."""
    taken: list[Script] = []
    count = 0
    for script in itertools.cycle(order):
        if count >= requests:
            break
        taken.append(script)
        count += len(script.turns)
    return taken
