"""How does a drafter become part of an engine?"""

from __future__ import annotations

from deepinfer_core.engine.drafts.host import Drafting, VerifyAll
from deepinfer_core.engine.drafts.stage import DraftStage
from deepinfer_core.errors import ConfigError, NotSupported
from deepinfer_core.interfaces.device import Device
from deepinfer_core.interfaces.draft_planner import DraftPlanner
from deepinfer_core.interfaces.drafter import Drafter, DraftHost
from deepinfer_core.interfaces.sampler import Sampler

__all__ = ["open_drafts"]


def open_drafts(
    drafter: Drafter,
    host: DraftHost,
    sampler: Sampler,
    device: Device,
    planner: DraftPlanner | None = None,
) -> tuple[DraftStage, Drafting]:
    """Attach a drafter; the device's side and the host's.

    Args:
        drafter: built, not attached.
        host: what it is told.
        sampler: verifies and draws.
        device: where all of it runs.
        planner: how many drafts are verified; None: all.

    Raises:
        ConfigError: it does not draft so many tokens.
        NotSupported: it needs a draft network and there is none, it cannot draft for this engine
            for another reason, or the sampler lacks the rule.
        DeviceError: there is not enough memory.
    """
    able, name = drafter.capabilities, type(drafter).__name__
    if host.drafts > able.max_drafts:
        raise ConfigError(
            f"speculation.max_drafts is {host.drafts}, {name} gives {able.max_drafts} at most",
            hint=f"set speculation.max_drafts = {able.max_drafts}, or fewer",
        )
    if able.uses_block and host.block is None:
        raise NotSupported(
            f"asked {name} for drafts, found a checkpoint without a draft network",
            hint="choose a checkpoint with num_nextn_predict_layers above 0, or another drafter, "
            "as core.ngram",
        )
    drafter.attach(host)
    stage = DraftStage(drafter, host, sampler, device)
    drafting = Drafting(
        host.drafts,
        planner or VerifyAll(),
        rule=host.rule,
        reads_tokens=able.reads_tokens,
        laws_each=host.drafts if stage.keeps_laws else 0,
        learners=(drafter.learn,),
    )
    return stage, drafting
