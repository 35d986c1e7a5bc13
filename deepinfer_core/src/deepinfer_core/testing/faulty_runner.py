"""Which runner lets steps fail, so that a test sees what becomes of the others?"""

from __future__ import annotations

import random
from collections import Counter

from deepinfer_core.engine.rows import (
    Drafted,
    DraftRequest,
    RowRequest,
    RowResult,
    Runner,
    StepHandle,
)
from deepinfer_core.schedule.plan import StepPlan

__all__ = ["FaultyRunner"]


class FaultyRunner(Runner):
    """Lets steps fail now and then: refused, refused at the sampling, or lost at the end.

    Args:
        runner: does the work.
        draw: random numbers.
        share: of the steps that fail.

    Attributes:
        failures: steps that failed, by place.
    """

    def __init__(self, runner: Runner, draw: random.Random, share: float) -> None:
        self.runner = runner
        self.share = share
        self.failures: Counter[str] = Counter()
        self._draw = draw

    def launch(self, plan: StepPlan, before: StepHandle | None) -> StepHandle:
        """See ``Runner``."""
        self._fail("launch")
        return self.runner.launch(plan, before)

    def sample(
        self,
        step: StepHandle,
        rows: tuple[RowRequest, ...],
        wanted: tuple[DraftRequest, ...] = (),
    ) -> None:
        """See ``Runner``."""
        self._fail("sample")
        self.runner.sample(step, rows, wanted)

    def results(self, step: StepHandle) -> tuple[RowResult, ...]:
        """See ``Runner``."""
        found = self.runner.results(step)
        self._fail("results")
        return found

    def drafted(self, step: StepHandle) -> Drafted:
        """See ``Runner``."""
        return self.runner.drafted(step)

    def drain(self) -> None:
        """See ``Runner``."""
        self.runner.drain()

    def close(self) -> None:
        """See ``Runner``."""
        self.runner.close()

    def _fail(self, place: str) -> None:
        if self._draw.random() < self.share / 3:
            self.failures[place] += 1
            raise RuntimeError(f"a step is made to fail at its {place}")
