"""How long do prompts and decode steps take, through the runner that serves?

Decode steps run as an asynchronous engine runs them: the next one is launched before the results of
the last one are read, and its sampling is queued behind them. A prompt's chunks are launched one
behind the other, and the token behind it is waited for.

Shapes: T rows, k experts a row.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from deepinfer_core.bench.layers.loads import Decoding, Pool, Prompt
from deepinfer_core.engine.packed_step import step_inputs
from deepinfer_core.engine.rows import RowRequest, RowSettings

if TYPE_CHECKING:
    from deepinfer_core.engine.runner import ModelRunner
    from deepinfer_core.schedule.plan import StepPlan

__all__ = ["Steps", "decode_s", "fill_caches", "prepared", "prompt_s", "routed_experts"]

_GREEDY = RowSettings()
_LEAD = 2
"""Steps of a loop before the first that counts: the first has nothing before it to overlap with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The decode steps of a load, made before any is timed."""

    plans: tuple[StepPlan, ...]
    drawn: tuple[tuple[RowRequest, ...], ...]


def prepared(decoding: Decoding, pool: Pool) -> Steps:
    """Make all plans of a load."""
    numbers = range(decoding.steps)
    return Steps(
        plans=tuple([decoding.plan(pool, n, is_first=n == 0) for n in numbers]),
        drawn=tuple([decoding.drawn(n) for n in numbers]),
    )


def decode_s(
    runner: ModelRunner,
    steps: Steps,
    *,
    clock_s: Callable[[], float] = time.perf_counter,
    ended: Callable[[], None] = lambda: None,
) -> float:
    """Median seconds between the results of two steps.

    Args:
        runner: over filled caches.
        steps: at least four.
        clock_s: monotonic clock.
        ended: called with the results of each step.
    """
    before, ends_s = None, []
    for plan, drawn in zip(steps.plans, steps.drawn, strict=True):
        step = runner.launch(plan, before)
        if before is not None:
            runner.results(before)
            ends_s.append(clock_s())
            ended()
        runner.sample(step, drawn)
        before = step
    assert before is not None
    runner.results(before)
    ends_s.append(clock_s())
    gaps_s = [after - end for end, after in pairwise(ends_s)]
    return statistics.median(gaps_s[_LEAD - 1 :])


def prompt_s(
    runner: ModelRunner,
    prompt: Prompt,
    pool: Pool,
    *,
    repeats: int,
    clock_s: Callable[[], float] = time.perf_counter,
) -> float:
    """Median seconds from the launch of the first chunk to the token behind the prompt.

    Args:
        runner: runs it.
        prompt: what is fed.
        pool: where it lies.
        repeats: timed runs, behind one that does not count.
        clock_s: monotonic clock.
    """
    plans = prompt.plans(pool)
    times_s = []
    for _ in range(repeats + 1):
        began_s = clock_s()
        *_, last = [runner.launch(plan, None) for plan in plans]
        runner.sample(last, (RowRequest(0, prompt.tokens, _GREEDY),))
        runner.results(last)
        times_s.append(clock_s() - began_s)
    return statistics.median(times_s[1:])


@torch.inference_mode()
def fill_caches(runner: ModelRunner, pool: Pool, *, tokens: int, chunk: int) -> None:
    """Feed one prompt, and copy what it left to all other blocks and state slots.

    Args:
        runner: over fresh caches.
        pool: its blocks.
        tokens: of the prompt.
        chunk: rows of a step.
    """
    caches, device = runner.caches, runner.device
    for plan in Prompt(tokens=tokens, chunk=chunk).plans(pool):
        runner.results(runner.launch(plan, None))
    filled = -(-tokens // pool.block_tokens)
    for first in range(1 + filled, caches.blocks_PB.shape[0], filled):
        part_PB = caches.blocks_PB[first : first + filled]
        part_PB.copy_(caches.blocks_PB[1 : 1 + part_PB.shape[0]])
    caches.states_PB[2:] = caches.states_PB[1]
    device.synchronise()


@torch.inference_mode()
def routed_experts(runner: ModelRunner, plan: StepPlan) -> float:
    """How many experts the rows of a step are sent to in a layer, on average; feeds the step.

    Args:
        runner: over filled caches.
        plan: without open tokens.
    """
    counts: list[int] = []

    def probe(name: str, value: torch.Tensor) -> None:
        if name.endswith(".experts"):
            counts.append(torch.unique(value).numel())

    model, device = runner.model, runner.device
    model.forward(step_inputs(plan, device), runner.caches, probe=probe)
    return statistics.fmean(counts)
