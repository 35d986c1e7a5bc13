"""How does a test hold an asynchronous engine between two steps, and what did it give?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from threading import Event, Semaphore

from deepinfer_core.engine.async_llm import AsyncLLM
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.outputs import Delta
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.schedule.plan import StepPlan

__all__ = ["Gate", "alone", "collect", "idle", "joined"]

_WAIT_S = 10
"""For a test that lets no step run; longer is a hang."""


class Gate:
    """Lets as many steps run as the test says; open, it lets all run.

    ``FakeRunner`` calls it before each step.

    Attributes:
        reached: set once a step came to it.
    """

    def __init__(self) -> None:
        self.reached = Event()
        self._steps = Semaphore(0)
        self._is_open = False

    def __call__(self, plan: StepPlan) -> None:
        """Wait until the step may run."""
        self.reached.set()
        if not self._is_open:
            assert self._steps.acquire(timeout=_WAIT_S)

    def pass_through(self, steps: int) -> None:
        """Let so many run."""
        for _ in range(steps):
            self._steps.release()

    def open(self) -> None:
        """Let all run."""
        self._is_open = True
        self._steps.release()


def alone(engine: Engine, prompt: list[int], params: SamplingParams) -> tuple[int, ...]:
    """What an engine gives for a prompt if it runs nothing else."""
    engine.submit(0, prompt, params)
    tokens: tuple[int, ...] = ()
    while len(engine.batch):
        for update in engine.step():
            tokens += update.delta.token_ids
    return tokens


async def collect(stream: AsyncIterator[Delta]) -> list[Delta]:
    """All that is left of a stream."""
    return [delta async for delta in stream]


def joined(deltas: list[Delta]) -> tuple[int, ...]:
    """Tokens of deltas."""
    return tuple(token for delta in deltas for token in delta.token_ids)


async def idle(llm: AsyncLLM, engine: Engine) -> None:
    """Wait until the engine holds nothing, and compare its books."""
    while llm.in_work or len(engine.batch):  # noqa: ASYNC110 - nothing tells when it is so
        await asyncio.sleep(0.001)
    engine.check_integrity()
