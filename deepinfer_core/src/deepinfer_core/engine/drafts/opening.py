"""How does a drafter become part of an engine?"""

from __future__ import annotations

from dataclasses import replace

from deepinfer_core.cache.storage import Caches
from deepinfer_core.config.settings import Settings
from deepinfer_core.engine.decode_graphs import DecodeGraphs
from deepinfer_core.engine.drafts.block import draft_block
from deepinfer_core.engine.drafts.host import Drafting, VerifyAll
from deepinfer_core.engine.drafts.stage import DraftStage
from deepinfer_core.engine.drafts.timer import RunnerTimer
from deepinfer_core.engine.recorded_steps import RecordedSteps
from deepinfer_core.engine.runner import ModelRunner
from deepinfer_core.errors import ConfigError, NotSupported
from deepinfer_core.interfaces.draft_planner import DraftPlanner
from deepinfer_core.interfaces.drafter import Drafter, DraftHost
from deepinfer_core.interfaces.sampler import Sampler
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.schedule.snapshot import Limits

__all__ = ["drafting_with", "open_drafting", "open_stage"]


def open_stage(
    drafter: Drafter, host: DraftHost, model: TextModel, caches: Caches, sampler: Sampler
) -> DraftStage:
    """Attach a drafter.

    Args:
        drafter: built, not attached.
        host: what it is told, all but the draft network.
        model: has that network, or has not.
        caches: of the engine.
        sampler: verifies and draws.

    Raises:
        ConfigError: it does not draft so many tokens.
        NotSupported: it needs a draft network and there is none, it cannot draft for this engine
            for another reason, or the sampler lacks the rule.
        DeviceError: there is not enough memory.
    """
    able = drafter.capabilities
    host = replace(host, block=draft_block(model, caches))
    if host.drafts > able.max_drafts:
        raise ConfigError(
            f"speculation.max_drafts is {host.drafts}, the drafter gives {able.max_drafts} at most",
            hint=f"set speculation.max_drafts = {able.max_drafts}, or fewer",
        )
    if able.uses_block and host.block is None:
        raise NotSupported(
            "asked for a drafter with a draft network, found a checkpoint without one",
            hint="choose a checkpoint with num_nextn_predict_layers above 0, or another drafter, "
            "as core.ngram",
        )
    drafter.attach(host)
    return DraftStage(drafter, host, sampler, model.parts.device)


def open_drafting(runner: ModelRunner, limits: Limits, settings: Settings) -> Drafting | None:
    """The host's side of a runner that is ready; None if it does not draft.

    Raises:
        NotSupported: a planned budget is asked for, and the drafter plans nothing.
    """
    stage = runner.stage
    if stage is None:
        return None
    planner: DraftPlanner = VerifyAll()
    if settings.speculation.budget == "planned":
        host = replace(stage.host, row_sizes=_row_sizes(runner.graphs))
        planner = stage.drafter.planner(host, RunnerTimer(runner, limits))
    return drafting_with(stage, planner)


def drafting_with(stage: DraftStage, planner: DraftPlanner) -> Drafting:
    """The host's side of a stage."""
    host, drafter = stage.host, stage.drafter
    return Drafting(
        host.drafts,
        planner,
        rule=host.rule,
        reads_tokens=drafter.capabilities.reads_tokens,
        laws_each=host.drafts if stage.keeps_laws else 0,
        learners=(drafter.learn,),
    )


def _row_sizes(graphs: RecordedSteps | None) -> tuple[int, ...]:
    """Sizes that steps are padded to; recordings that are made as they come are near enough."""
    if not isinstance(graphs, DecodeGraphs):
        return ()
    return tuple(sorted({rung.rows for rung in graphs.rungs}))
