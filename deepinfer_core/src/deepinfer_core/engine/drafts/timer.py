"""How long do steps and draft rounds of any size take?

They run over the dummy pages, through the runner that will run them, before the first request.
"""

from __future__ import annotations

import time

from deepinfer_core.engine.rows import DraftRequest, RowRequest, RowSettings
from deepinfer_core.engine.runner import ModelRunner
from deepinfer_core.interfaces.draft_planner import StepTimer
from deepinfer_core.schedule.plan import SequenceStep, StepPlan
from deepinfer_core.schedule.snapshot import Limits

__all__ = ["RunnerTimer"]

_ORDINARY = RowSettings(temperature=1.0)


class RunnerTimer(StepTimer):
    """Times work of a runner.

    Args:
        runner: with a stage; nothing is under way.
        limits: of its steps.
    """

    def __init__(self, runner: ModelRunner, limits: Limits) -> None:
        self._runner = runner
        self._limits = limits

    def step(self, rows: int) -> float:
        """Run a decode step; see ``StepTimer``. Every row is drawn from, as verified ones are.

        Raises:
            ValueError: no step has so many rows.
        """
        plan, runner = self._plan(rows), self._runner
        runner.drain()
        began_s = time.perf_counter()
        step = runner.launch(plan, None)
        runner.sample(step, tuple([RowRequest(row, 1, _ORDINARY) for row in range(rows)]))
        runner.results(step)
        return time.perf_counter() - began_s

    def round(self, sequences: int) -> float:
        """Run a draft round; see ``StepTimer``.

        Raises:
            ValueError: no round has so many sequences.
        """
        if not 1 <= sequences <= self._limits.max_sequences:
            raise ValueError(
                f"asked for a round of {sequences} sequences, {self._limits.max_sequences} run"
            )
        runner, settings = self._runner, _ORDINARY
        step = runner.launch(StepPlan((_decoding(1),) * sequences), None)
        runner.sample(step, tuple([RowRequest(row, 1, settings) for row in range(sequences)]))
        runner.results(step)
        wanted = [DraftRequest(0, row, 1, 0, 0, 0, settings) for row in range(sequences)]
        began_s = time.perf_counter()
        runner.draft_again(step, tuple(wanted))
        runner.results(step)
        elapsed_s = time.perf_counter() - began_s
        known_s = runner.drafted(step).round_s
        return elapsed_s if known_s is None else known_s

    def _plan(self, rows: int) -> StepPlan:
        """As many sequences as can be; each has a row before one has two."""
        limits = self._limits
        if not 1 <= rows <= limits.max_sequences * limits.rows_each:
            raise ValueError(
                f"asked for a step of {rows} rows, found {limits.max_sequences} sequences of "
                f"{limits.rows_each} at most"
            )
        sequences = min(rows, limits.max_sequences)
        each, more = divmod(rows, sequences)
        return StepPlan(tuple([_decoding(each + (n < more)) for n in range(sequences)]))


def _decoding(rows: int) -> SequenceStep:
    return SequenceStep(
        sequence_id=0,
        start=0,
        token_ids=(0,) * rows,
        history=(-1, -1, -1),
        block_ids=(0,),
        state_slot=0,
        wants_token=True,
        scored_rows=rows - 1,
    )
