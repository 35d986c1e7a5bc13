"""Which kernels will an engine of these settings call? Asked of a model without numbers.

The model is built on a device that is not there and runs the steps that warm an engine up. Its
components are those that were picked, and note down which kernels they call. Where a slot's
component has no kernels, an idle one stands in, as it might want numbers. So does one for the
drafter: the kernels of a round are those of the draft network and of the sampler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from deepinfer_core.cache.replay import DecoderTruncation
from deepinfer_core.cache.storage import Caches
from deepinfer_core.config.settings import Settings
from deepinfer_core.engine.drafts.opening import open_stage
from deepinfer_core.engine.drafts.proposed import Proposed
from deepinfer_core.engine.drafts.stage import DraftStage
from deepinfer_core.engine.drawn import Drawn
from deepinfer_core.engine.kernels.absent_device import AbsentDevice, Idle
from deepinfer_core.engine.kernels.absent_drafter import AbsentDrafter
from deepinfer_core.engine.kernels.absent_weights import AbsentWeights
from deepinfer_core.engine.memory_plan import plan_memory
from deepinfer_core.engine.page_sizes import BLOCK_TOKENS
from deepinfer_core.engine.readiness import StepSizes, rehearse
from deepinfer_core.engine.rows import RowResult, StepHandle
from deepinfer_core.engine.runner import ModelRunner, ModelStep
from deepinfer_core.interfaces.device import InlineStream
from deepinfer_core.interfaces.drafter import Drafter, DraftHost
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.interfaces.operators.wanted import Rehearsal, WantedKernel
from deepinfer_core.interfaces.sampler import Sampler
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.builder import build_model
from deepinfer_core.model.caches import allocate_caches
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.plugin import Resolved, load
from deepinfer_core.reference.all_to_all import LocalExchange

__all__ = ["RehearsingRunner", "absent_model", "absent_runner", "has_kernels", "wanted_kernels"]


def has_kernels(resolved: Resolved) -> bool:
    """Whether some component that was picked has tile kernels."""
    return any(pick.spec.kernels for pick in resolved.picks)


def wanted_kernels(
    config: ModelConfig, settings: Settings, resolved: Resolved, formats: Mapping[str, str]
) -> tuple[WantedKernel, ...]:
    """Rehearse an engine.

    Args:
        config: of the checkpoint.
        settings: of the engine.
        resolved: the choice of components.
        formats: of weights that are stored otherwise than the config declares, by name.

    Returns:
        Every kernel that the warm-up of such an engine calls, once.

    Raises:
        ConfigError: a limit cannot be used.
        NotSupported: a component lacks a format or width of this model.
        Exception: whatever a component raises that cannot do without numbers.
    """
    rehearsal = Rehearsal()
    memory = plan_memory(config, settings, 0)
    with torch.inference_mode():
        runner = absent_runner(
            config,
            settings,
            resolved,
            rehearsal,
            formats=formats,
            num_blocks=memory.num_blocks,
            num_slots=memory.num_slots,
            max_backtracking=memory.max_backtracking,
        )
        sizes = StepSizes(
            max_rows=settings.engine.max_num_batched_tokens,
            max_sequences=settings.engine.max_num_seqs,
            max_tokens=memory.max_model_tokens,
            block_tokens=BLOCK_TOKENS,
            rows_each=1 + settings.drafts,
        )
        rehearse(runner, sizes, records=settings.engine.graphs)
    return rehearsal.wanted


class RehearsingRunner(ModelRunner):
    """A runner whose steps leave nothing to read."""

    def send(self, given: Drawn | Proposed) -> None:
        """There are no numbers to copy."""

    def results(self, step: StepHandle) -> tuple[RowResult, ...]:
        """Raise what a step raised."""
        assert isinstance(step, ModelStep)
        for end in step.ends:
            end.wait()
        return ()


def absent_runner(
    config: ModelConfig,
    settings: Settings,
    resolved: Resolved,
    rehearsal: Rehearsal,
    *,
    formats: Mapping[str, str],
    num_blocks: int,
    num_slots: int,
    max_backtracking: int,
) -> ModelRunner:
    """A runner on a device that is not there.

    Args:
        config: of the model.
        settings: numerics, and what becomes of prompts in the decoder half.
        resolved: the choice of components.
        rehearsal: is told which kernels they call.
        formats: of weights that are stored otherwise than the config declares, by name.
        num_blocks: blocks, the dummy included.
        num_slots: state slots, the dummy included.
        max_backtracking: most rows of a sequence in a decode step.
    """
    model, sampler = absent_model(
        config, settings.model.numerics.numerics(), resolved, rehearsal, formats=formats
    )
    parts, text = model.parts, config.text_config
    caches = allocate_caches(
        config,
        parts.numerics,
        parts.codec,
        parts.device,
        num_blocks=num_blocks,
        num_slots=num_slots,
        max_backtracking=max_backtracking,
        block_tokens=BLOCK_TOKENS,
    )
    mode, keep_tokens = settings.engine.replay, settings.engine.replay_keep_tokens
    truncation = None
    if mode != "off":
        truncation = DecoderTruncation(mode=mode, keep_tokens=keep_tokens)
    stage = None
    if settings.drafts:
        stage = _stage(config, settings, resolved, model, caches, sampler)
    return RehearsingRunner(
        model,
        caches,
        sampler,
        InlineStream(),
        vocabulary=text.vocab_size,
        truncation=truncation,
        stage=stage,
    )


def absent_model(
    config: ModelConfig,
    numerics: Numerics,
    resolved: Resolved,
    rehearsal: Rehearsal,
    *,
    formats: Mapping[str, str],
) -> tuple[TextModel, Sampler]:
    """A model on a device that is not there, and the sampler of the same choice.

    Args:
        config: of the model.
        numerics: its roundings.
        resolved: the choice of components.
        rehearsal: is told which kernels they call.
        formats: of weights that are stored otherwise than the config declares, by name.
    """
    absent = replace(resolved, context=replace(resolved.context, rehearsal=rehearsal))
    model = build_model(
        AbsentWeights(config, formats),
        _parts(absent, numerics),
        compressed_ids=torch.zeros(config.text_config.vocab_size, dtype=torch.int64),
    )
    sampler: Sampler = _part(absent, "sampler")
    return model, sampler


def _stage(
    config: ModelConfig,
    settings: Settings,
    resolved: Resolved,
    model: TextModel,
    caches: Caches,
    sampler: Sampler,
) -> DraftStage:
    drafter: Drafter = load(resolved, "drafter")
    host = DraftHost(
        drafts=settings.drafts,
        vocabulary=config.text_config.vocab_size,
        max_sequences=settings.engine.max_num_seqs,
        max_tokens=config.text_config.max_position_embeddings,
        rule=settings.speculation.rule,
        torch_device=model.parts.device.torch_device,
    )
    return open_stage(AbsentDrafter(drafter.capabilities), host, model, caches, sampler)


def _parts(resolved: Resolved, numerics: Numerics) -> ModelParts:
    has_exchange = resolved.pick("all_to_all").spec.kernels
    return ModelParts(
        device=AbsentDevice(),
        prefill=_part(resolved, "attention", "prefill"),
        decode=_part(resolved, "attention", "decode"),
        indexer=_part(resolved, "attention", "indexer"),
        codec=_part(resolved, "attention", "cache_codec"),
        dense=_part(resolved, "gemm", "dense"),
        grouped=_part(resolved, "gemm", "grouped"),
        transform=_part(resolved, "transform"),
        all_to_all=load(resolved, "all_to_all") if has_exchange else LocalExchange(),
        numerics=numerics,
    )


def _part(resolved: Resolved, kind: str, slot: str | None = None) -> Any:
    return load(resolved, kind, slot) if resolved.pick(kind, slot).spec.kernels else Idle()
