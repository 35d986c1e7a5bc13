"""How is a step handed to the runner, in its two parts?

What a component raises is kept in the step, and ends its sequences when the step is concluded.
"""

from __future__ import annotations

from collections.abc import Callable

from deepinfer_core.engine.admission import Rules
from deepinfer_core.engine.batch import Batch
from deepinfer_core.engine.grammar_masks import Grammars
from deepinfer_core.engine.row_requests import sampled_rows
from deepinfer_core.engine.rows import Runner
from deepinfer_core.engine.under_way import UnderWay

__all__ = ["launched", "sample"]


def launched(
    batch: Batch, runner: Runner, before: UnderWay | None, clock_s: Callable[[], float]
) -> UnderWay | None:
    """Decide a step and queue its forward pass; None if nobody can feed a row now.

    Args:
        batch: the queues.
        runner: of the engine.
        before: the step under way.
        clock_s: monotonic clock.
    """
    began_s = clock_s()
    launch = batch.launch() if len(batch) else None
    if launch is None:
        return None
    step = UnderWay(launch, began_s)
    try:
        step.handle = runner.launch(launch.plan, before.handle if before else None)
    except Exception as error:  # noqa: BLE001 - components are foreign code
        step.failure = error
    step.schedule_s = clock_s() - began_s
    return step


def sample(
    step: UnderWay,
    runner: Runner,
    rules: Rules,
    grammars: Grammars,
    clock_s: Callable[[], float],
) -> None:
    """Queue the sampling of a launched step, and the round of drafts behind it.

    Args:
        step: all tokens of the step before it are known.
        runner: of the engine.
        rules: of the engine.
        grammars: masks of its rows.
        clock_s: monotonic clock.
    """
    began_s = clock_s()
    launch, drafting = step.launch, step.launch.drafting
    try:
        shared = None if step.handle is None else runner.shared_rows(step.handle)
        if shared is not None:
            launch.share(shared)
    except Exception as error:  # noqa: BLE001 - components are foreign code
        step.failure = error
    laws_each = drafting.laws_each if drafting else 0
    rows, step.owners = sampled_rows(launch.plan, launch.sequences, rules, laws_each)
    step.rows, step.broken = grammars.masked(rows, step.owners)
    if drafting is not None:
        step.wanted, step.drafted = drafting.ask(step.rows, step.owners)
    try:
        if step.handle is not None:
            runner.sample(step.handle, step.rows, step.wanted)
    except Exception as error:  # noqa: BLE001 - components are foreign code
        step.failure = error
    step.schedule_s += clock_s() - began_s
