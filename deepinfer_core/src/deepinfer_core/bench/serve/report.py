"""Which figures does a load give, next to those of one user alone?

Latencies are those of requests that went well. A rate is compared with the same rate of the user
alone, as many times as there are users, or with what an open load offered; a latency with that of
the user alone.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable

from deepinfer_core.bench.figures import Figure, Reference
from deepinfer_core.bench.percentile import PERCENTS, percentile
from deepinfer_core.bench.serve.exchange import Exchange
from deepinfer_core.bench.serve.sweep import LevelResult

__all__ = ["durations", "failures", "level_figures", "rates", "speeds", "was_bottleneck"]

_CLOCK_S = 1e-6
"""Durations below it are not told apart: an event loop takes longer to look at the clock."""
Row = tuple[str, float, str, Reference]
"""Name, value, unit and what it is compared with."""


def rates(result: LevelResult) -> dict[str, float]:
    """What was finished a second: requests, output tokens, all tokens."""
    good = result.good
    output = sum(exchange.completion_tokens for exchange in good)
    prompt = sum(exchange.prompt_tokens for exchange in good)
    amounts = {"requests": len(good), "output_tokens": output, "total_tokens": prompt + output}
    return {name: amount / result.elapsed_s for name, amount in amounts.items()}


def durations(result: LevelResult) -> dict[str, list[float]]:
    """What was measured of each request that went well; a list may be empty.

    ``queue``: until the status line, ``first_token``: until the first event with text,
    ``inter_token``: between two of those, ``request``: until the end.
    """
    good = result.good
    takes: dict[str, Callable[[Exchange], float | None]] = {
        "queue": lambda one: one.queue_s,
        "first_token": lambda one: one.first_token_s,
        "request": lambda one: one.total_s,
    }
    found = {
        name: [value for one in good if (value := take(one)) is not None]
        for name, take in takes.items()
    }
    return found | {"inter_token": [gap for one in good for gap in one.gaps_s]}


def speeds(result: LevelResult) -> list[float]:
    """Tokens a second that each user saw."""
    return [speed for one in result.good if (speed := one.speed) is not None]


def failures(result: LevelResult) -> dict[str, int]:
    """How often each kind of failure was seen."""
    return dict(Counter(one.failure for one in result.exchanges if one.failure))


def was_bottleneck(result: LevelResult) -> bool:
    """Whether the figures may be the generator's own."""
    shortest = _shortest(result)
    return result.headroom.is_bottleneck(float("inf") if shortest is None else shortest.value)


def level_figures(result: LevelResult, alone: LevelResult, load_name: str) -> list[Figure]:
    """The figures of one load.

    Args:
        result: of the load.
        alone: of one user alone; what it has none of, a gap of answers of one event, has no figure.
        load_name: for their names.
    """
    named = [
        *_rate_figures(result, alone),
        *_latency_figures(result, alone),
        *_count_figures(result),
        *_generator_figures(result),
    ]
    return [
        Figure(name=f"serve.{name}[{load_name}]", value=value, unit=unit, reference=reference)
        for name, value, unit, reference in named
    ]


def _rate_figures(result: LevelResult, alone: LevelResult) -> list[Row]:
    units = {"requests": "requests/s"}
    rows = []
    for name, value in rates(result).items():
        reference = _ideal_rate(name, result, alone)
        if reference.value > 0:
            rows.append((name, value, units.get(name, "tokens/s"), reference))
    mine, theirs = speeds(result), speeds(alone)
    if mine and theirs:
        peer = _peer("one user alone", statistics.median(theirs))
        rows.append(("user_speed.p50", statistics.median(mine), "tokens/s", peer))
    return rows


def _ideal_rate(name: str, result: LevelResult, alone: LevelResult) -> Reference:
    level = result.level
    if level.kind == "closed":
        return _peer("one user alone, times the users", rates(alone)[name] * level.value)
    # Turns behind a first one are offered by the answers to it, so by what was asked in the end.
    offered = len(result.exchanges) / max(_last_due_s(result), _CLOCK_S)
    per_request = rates(result)[name] / max(rates(result)["requests"], _CLOCK_S)
    return Reference(kind="bound", name="what was offered", value=offered * per_request)


def _last_due_s(result: LevelResult) -> float:
    dues_s = [one.due_s for one in result.exchanges]
    return (max(dues_s) - min(dues_s)) if len(dues_s) > 1 else result.elapsed_s


def _latency_figures(result: LevelResult, alone: LevelResult) -> list[Row]:
    theirs = durations(alone)
    return [
        (f"{name}.p{percent}", percentile(values, percent), "s",
         _peer("one user alone", percentile(theirs[name], percent)))
        for name, values in durations(result).items()
        if values and theirs[name]
        for percent in PERCENTS
    ]  # fmt: skip


def _count_figures(result: LevelResult) -> list[Row]:
    sent = Reference(kind="bound", name="requests sent", value=len(result.exchanges))
    rows: list[Row] = [("failures", len(result.exchanges) - len(result.good), "requests", sent)]
    prompt_tokens = sum(one.prompt_tokens for one in result.good)
    if prompt_tokens:
        cached_tokens = sum(one.cached_tokens for one in result.good)
        whole = Reference(kind="bound", name="tokens of the prompts", value=prompt_tokens)
        rows.append(("cached_tokens", cached_tokens, "tokens", whole))
    return rows


def _generator_figures(result: LevelResult) -> list[Row]:
    core = Reference(kind="bound", name="a whole core", value=1.0)
    rows: list[Row] = [("generator.busy", result.headroom.busy_share, "cores", core)]
    shortest = _shortest(result)
    if shortest is not None:
        rows.append(("generator.lag.p99", result.headroom.lag_p99_s, "s", shortest))
    return rows


def _shortest(result: LevelResult) -> Reference | None:
    """What a lag would hide first.

    A mean: events that are read together have no time between them, so a median may be 0.
    """
    found = durations(result)
    for name in ("inter_token", "first_token"):
        if found[name]:
            return _peer(f"mean of {name}", statistics.mean(found[name]))
    return None


def _peer(name: str, value: float) -> Reference:
    return Reference(kind="peer", name=name, value=max(value, _CLOCK_S))
