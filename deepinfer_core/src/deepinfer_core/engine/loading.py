"""How do settings become a running engine?

In this order, so that the cheap questions are answered first: the checkpoint's config, the
components, the store, the memory, the tensors' headers, the kernels, the weights. Nothing here is
remembered between calls: two engines share nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deepinfer_core import __version__
from deepinfer_core.cache.fingerprint import layout_fingerprint
from deepinfer_core.cache.replay import DecoderTruncation
from deepinfer_core.config import LoadedSettings, checkpoint_folder, resolve_components
from deepinfer_core.config.checkpoints import checkpoint_name
from deepinfer_core.config.settings import Settings
from deepinfer_core.engine.admission import Rules
from deepinfer_core.engine.batch import Batch
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.drafts.settings import check_speculation, draft_host, reads_tokens
from deepinfer_core.engine.grammar_opening import open_grammars
from deepinfer_core.engine.instruments import Instruments
from deepinfer_core.engine.memory_plan import MemoryPlan, plan_memory
from deepinfer_core.engine.model_folder import model_needs, read_config
from deepinfer_core.engine.model_loading import model_parts, read_model
from deepinfer_core.engine.observers import tell_resolved, tell_started
from deepinfer_core.engine.page_sizes import BLOCK_TOKENS
from deepinfer_core.engine.pages import PageCounts
from deepinfer_core.engine.prefix_reuse import ReusePolicy
from deepinfer_core.engine.reuse_settings import reuse_policy
from deepinfer_core.engine.stored.opening import check_store, exchange_over, open_traffic
from deepinfer_core.engine.stored.parts import parts_of
from deepinfer_core.engine.tokenizer import open_tokenizer
from deepinfer_core.interfaces.device import InlineStream
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.plugin import Resolved, load
from deepinfer_core.plugin.resolution import Resolution
from deepinfer_core.schedule.snapshot import Limits
from deepinfer_core.stores.traffic import BlockTraffic
from deepinfer_core.telemetry.progress import ProgressStream

if TYPE_CHECKING:
    from deepinfer_core.cache.storage import Caches
    from deepinfer_core.engine.late_recordings import LateRecordings
    from deepinfer_core.engine.readiness import BuiltKernels
    from deepinfer_core.engine.runner import ModelRunner
    from deepinfer_core.model.backbone import TextModel

__all__ = ["Loaded", "load_engine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """An engine and what it was made from.

    Attributes:
        engine: ready for requests.
        folder: of the checkpoint.
        config: of the checkpoint.
        resolution: the choice of components.
        memory: what was allocated.
    """

    engine: Engine
    folder: Path
    config: ModelConfig
    resolution: Resolution
    memory: MemoryPlan


def load_engine(loaded: LoadedSettings, progress: ProgressStream | None = None) -> Loaded:
    """Build an engine.

    Args:
        loaded: the settings.
        progress: told about the phases ``kernels.compile``, ``weights.load``, ``kernels.build`` and
            ``graphs.record``.

    Raises:
        ConfigError: a setting or the checkpoint's config cannot be used.
        DeepInferError: the store cannot be opened.
        PluginError: a slot cannot be filled, or its component breaks what ``strict`` asks for.
        WeightsError: the checkpoint is missing or damaged.
        DeviceError: there is not enough memory, or a kernel cannot be compiled.
        NotSupported: a component lacks a format or width of this model.
    """
    began_s = time.monotonic()
    settings, stream = loaded.settings, progress or ProgressStream()
    check_speculation(loaded)
    folder = checkpoint_folder(settings.model.path)
    config = read_config(folder, settings)
    resolution = resolve_components(loaded, model_needs(config, settings))
    tell_resolved(resolution)
    resolved = resolution.require()
    check_store(settings, resolved)
    traffic = open_traffic(settings, resolved, config)
    try:
        return _load(loaded, folder, config, resolution, traffic, stream, began_s)
    except BaseException:
        if traffic is not None:
            traffic.close()
        raise


def _load(
    loaded: LoadedSettings,
    folder: Path,
    config: ModelConfig,
    resolution: Resolution,
    traffic: BlockTraffic | None,
    stream: ProgressStream,
    began_s: float,
) -> Loaded:
    """All that takes long, once the cheap questions are answered and the store is open."""
    settings, resolved = loaded.settings, resolution.require()
    tokenizer = open_tokenizer(folder)
    runner, memory, policy = _build_runner(folder, config, settings, resolved, stream)
    limits = Limits(
        max_rows=settings.engine.max_num_batched_tokens,
        max_sequences=settings.engine.max_num_seqs,
        block_tokens=BLOCK_TOKENS,
        usable_blocks=memory.num_blocks - 1,
        mixes=settings.engine.mixed_steps,
        rows_each=1 + settings.drafts,
    )
    counts = PageCounts(
        blocks=memory.num_blocks, slots=memory.num_slots, snapshots=memory.snapshot_slots
    )
    from deepinfer_core.engine.drafts.opening import open_drafting

    built = _make_ready(runner, limits, memory, settings, stream)
    drafting = open_drafting(runner, limits, settings)
    exchange = None if traffic is None else exchange_over(traffic, settings, policy, runner)
    batch = Batch(limits, counts, policy, drafting, exchange)
    instruments = _instruments(batch, built, folder, resolution, settings)
    engine = Engine(
        runner,
        batch,
        _rules(config, settings, memory, has_text=tokenizer is not None),
        tokenizer,
        load_s=time.monotonic() - began_s,
        seed=settings.engine.seed,
        instruments=instruments,
        is_asynchronous=settings.engine.asynchronous,
        priority_boost_s=settings.engine.priority_boost_s,
        grammars=open_grammars(resolution, config, settings, tokenizer, instruments),
    )
    info = {"device": settings.device, "checkpoint": str(folder), **memory.to_json()}
    tell_started(resolution, info)
    return Loaded(engine=engine, folder=folder, config=config, resolution=resolution, memory=memory)


def _make_ready(
    runner: ModelRunner,
    limits: Limits,
    memory: MemoryPlan,
    settings: Settings,
    progress: ProgressStream,
) -> BuiltKernels:
    from deepinfer_core.engine.readiness import StepSizes, make_ready

    sizes = StepSizes(
        max_rows=limits.max_rows,
        max_sequences=limits.max_sequences,
        max_tokens=memory.max_model_tokens,
        block_tokens=limits.block_tokens,
        rows_each=limits.rows_each,
    )
    return make_ready(runner, sizes, progress, records=settings.engine.graphs)


def _instruments(
    batch: Batch, built: BuiltKernels, folder: Path, resolution: Resolution, settings: Settings
) -> Instruments:
    return Instruments(
        lambda: batch.readings()._replace(late_kernels=built.late),
        version=__version__,
        model=checkpoint_name(settings.model.path, folder),
        components=resolution.report.picked(),
        classes=settings.engine.kv_store.classes,
        parts=parts_of(resolution.require()),
        statistics_interval_s=settings.telemetry.statistics_interval_s,
    )


def _rules(config: ModelConfig, settings: Settings, memory: MemoryPlan, *, has_text: bool) -> Rules:
    return Rules(
        vocabulary=config.text_config.vocab_size,
        max_model_tokens=memory.max_model_tokens,
        eos_ids=frozenset({config.eos_token_id}),
        banned_ids=settings.engine.decode_token_blacklist,
        has_text=has_text,
        keep_tokens=None if settings.engine.replay == "off" else settings.engine.replay_keep_tokens,
        retention_classes=frozenset(settings.engine.kv_store.classes),
    )


def _truncation(
    config: ModelConfig, settings: Settings, memory: MemoryPlan
) -> DecoderTruncation | None:
    mode = settings.engine.replay
    if mode == "off":
        return None
    from deepinfer_core.model.replay import check_halves

    truncation = DecoderTruncation(mode=mode, keep_tokens=settings.engine.replay_keep_tokens)
    truncation.check(
        window_tokens=config.text_config.sliding_window, max_backtracking=memory.max_backtracking
    )
    check_halves(config)
    return truncation


def _build_runner(
    folder: Path,
    config: ModelConfig,
    settings: Settings,
    resolved: Resolved,
    stream: ProgressStream,
) -> tuple[ModelRunner, MemoryPlan, ReusePolicy]:
    """Read the weights; torch and the components are imported here, after the cheap questions."""
    import torch

    from deepinfer_core.engine.drafts.opening import open_stage
    from deepinfer_core.engine.kernels.preparing import prepare_kernels
    from deepinfer_core.engine.proof.proving import prove
    from deepinfer_core.engine.runner import ModelRunner
    from deepinfer_core.model.caches import allocate_caches
    from deepinfer_core.weights.checkpoint import open_checkpoint

    torch.set_num_threads(settings.threads)
    parts = model_parts(resolved, settings)
    memory = plan_memory(
        config,
        settings,
        parts.device.memory().total_bytes,
        reads_tokens=reads_tokens(settings, resolved),
    )
    truncation = _truncation(config, settings, memory)
    checkpoint = open_checkpoint(folder)
    checkpoint.config = config
    formats = {name: weight.format for name, weight in checkpoint.found.items()}
    prepare_kernels(config, settings, resolved, formats, stream)
    model = read_model(folder, checkpoint, parts, stream)
    sampler = load(resolved, "sampler")
    prove(model, sampler, resolved, max_rows=settings.engine.max_num_batched_tokens)
    caches = allocate_caches(
        config,
        parts.numerics,
        parts.codec,
        parts.device,
        num_blocks=memory.num_blocks,
        num_slots=memory.num_slots,
        max_backtracking=memory.max_backtracking,
        block_tokens=BLOCK_TOKENS,
    )
    # Work that was launched on a device of its own is not done: only a CPU can do without a stream.
    has_stream = settings.engine.asynchronous or parts.device.torch_device.type != "cpu"
    layout = layout_fingerprint(caches.layout)
    policy = reuse_policy(config, settings, resolved, checkpoint.fingerprint, layout)
    stage = None
    if settings.drafts:
        host = draft_host(config, settings, resolved, memory, parts.device, checkpoint.fingerprint)
        stage = open_stage(load(resolved, "drafter"), host, model, caches, sampler)
    runner = ModelRunner(
        model,
        caches,
        sampler,
        parts.device.stream() if has_stream else InlineStream(),
        vocabulary=config.text_config.vocab_size,
        truncation=truncation,
        graphs=_late_recordings(model, caches, settings, memory) if truncation is None else None,
        stage=stage,
    )
    # Weights and caches were written by work in another order than that of the runner's stream.
    parts.device.synchronise()
    return runner, memory, policy


def _late_recordings(
    model: TextModel, caches: Caches, settings: Settings, memory: MemoryPlan
) -> LateRecordings | None:
    """Decode steps that components record; a device records them when all is ready."""
    from deepinfer_core.engine.late_recordings import LateRecordings, shared_recorder

    recorder = shared_recorder(model.parts)
    if recorder is None or not settings.engine.graphs:
        return None
    return LateRecordings(
        model,
        caches,
        recorder,
        max_sequences=settings.engine.max_num_seqs,
        max_tokens=memory.max_model_tokens,
        block_tokens=BLOCK_TOKENS,
        rows_each=1 + settings.drafts,
    )
