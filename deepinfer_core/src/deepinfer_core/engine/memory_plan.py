"""Does the memory suffice, and how many blocks and slots does the engine get?

Arithmetic only, from the checkpoint's config, the settings and what the device has; done before any
weight is read. Weights count with the bytes that the checkpoint stores; a component that keeps them
in a wider form needs more. On a CPU, recorded decode steps count with the most that they may keep,
whichever components are chosen. On other devices they share memory, as activations do.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from deepinfer_core.cache.layout import CacheLayout, cache_layout
from deepinfer_core.cache.row_bytes import planned_row_bytes
from deepinfer_core.config.settings import EngineSettings, Settings
from deepinfer_core.engine.drafts.memory import laws_bytes, tokens_bytes
from deepinfer_core.errors import ConfigError
from deepinfer_core.interfaces.recording import MOST_RECORDED_BYTES
from deepinfer_core.model.cache_needs import cache_formats, cache_needs
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.weights.manifest import manifest_of

__all__ = [
    "BLOCK_TOKENS",
    "CACHE_SHARE",
    "SNAPSHOTS_PER_SEQUENCE",
    "SNAPSHOT_SHARE",
    "MemoryPlan",
    "PageSizes",
    "page_sizes",
    "plan_memory",
    "planned_layout",
]

BLOCK_TOKENS = 128
"""Tokens of a block, as in the published engine: prefixes are shared in these units."""

CACHE_SHARE = 0.5
"""Part of the memory left beside the weights that blocks may take when nobody sets their number;
the rest is for activations, logits and whatever else runs on the machine."""

SNAPSHOTS_PER_SEQUENCE = 4
"""Copies of states that are kept for each running sequence when nobody sets their number: a few
turns of a conversation and a shared beginning each."""

SNAPSHOT_SHARE = 0.1
"""Part of the memory left beside weights and running states that these copies may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSizes:
    """Bytes of the things that an engine holds.

    Attributes:
        weights_bytes: weights, as stored; on a device that is not the host without the tables that
            it reads in host memory.
        block_bytes: one block.
        state_bytes: one state slot.
        recordings_bytes: all recorded decode steps, at most.
        laws_bytes: laws of drafts, where they are accepted by them.
        tokens_bytes: tokens of running sequences, where a drafter reads them.
    """

    weights_bytes: int
    block_bytes: int
    state_bytes: int
    recordings_bytes: int = 0
    laws_bytes: int = 0
    tokens_bytes: int = 0

    @property
    def fixed_bytes(self) -> int:
        """What is needed whatever the number of pages."""
        return self.weights_bytes + self.recordings_bytes + self.laws_bytes + self.tokens_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """What an engine allocates.

    Attributes:
        sizes: bytes of one of each.
        max_model_tokens: longest prompt and output together.
        max_backtracking: rows that a step may feed and take back.
        num_blocks: blocks, the dummy included.
        num_slots: state slots, the dummy and those of snapshots included.
        snapshot_slots: of these, for copies of states.
    """

    sizes: PageSizes
    max_model_tokens: int
    max_backtracking: int
    num_blocks: int
    num_slots: int
    snapshot_slots: int

    @property
    def total_bytes(self) -> int:
        """Weights, recorded steps, what drafts need, blocks and state slots."""
        blocks_bytes = self.num_blocks * self.sizes.block_bytes
        return self.sizes.fixed_bytes + blocks_bytes + self.num_slots * self.sizes.state_bytes

    def to_json(self) -> dict[str, int]:
        """All figures as plain data."""
        numbers = asdict(self)
        return {**numbers.pop("sizes"), **numbers, "total_bytes": self.total_bytes}


def page_sizes(config: ModelConfig, settings: Settings, *, reads_tokens: bool = False) -> PageSizes:
    """Sizes that follow from a checkpoint's config and the numerics.

    Args:
        config: of the checkpoint.
        settings: of the engine.
        reads_tokens: the drafter wants the tokens of sequences.

    Raises:
        ConfigError: the longest text is beyond the checkpoint.
        NotSupported: a width does not fit a cache format.
    """
    longest = _max_model_tokens(config, settings.engine)
    layout = planned_layout(config, settings)
    return PageSizes(
        weights_bytes=_weights_bytes(config, settings.device),
        block_bytes=layout.block.stride_bytes,
        state_bytes=layout.state.stride_bytes,
        recordings_bytes=_recordings_bytes(settings),
        laws_bytes=laws_bytes(settings, config.text_config.vocab_size),
        tokens_bytes=tokens_bytes(settings, longest) if reads_tokens else 0,
    )


def planned_layout(config: ModelConfig, settings: Settings) -> CacheLayout:
    """What will lie where in the caches; that of the engine, whose codec knows the same rows.

    Args:
        config: of the checkpoint.
        settings: of the engine.

    Raises:
        NotSupported: a width does not fit a cache format.
    """
    return cache_layout(
        cache_needs(config),
        cache_formats(config, settings.model.numerics.numerics()),
        planned_row_bytes,
        max_backtracking=backtracking(config, settings),
        block_tokens=BLOCK_TOKENS,
    )


def _recordings_bytes(settings: Settings) -> int:
    """What recorded steps may keep; a step with drafts has as many rows more."""
    keeps = settings.device == "cpu" and settings.engine.graphs
    return MOST_RECORDED_BYTES * (1 + settings.drafts) if keeps else 0


def _weights_bytes(config: ModelConfig, device: str) -> int:
    manifest = manifest_of(config)
    if device == "cpu":
        return manifest.nbytes
    tables = (manifest.weights.get(f"{one.prefix}engram.embed.weight") for one in config.layers)
    return manifest.nbytes - sum(
        part.nbytes for table in tables if table is not None for part in table.stored()
    )


def backtracking(config: ModelConfig, settings: Settings) -> int:
    """Rows that a step may feed and take back: what is configured, or what drafts need."""
    configured = settings.engine.max_backtracking_tokens
    return max(configured, config.verified_rows, 1 + settings.drafts)


def plan_memory(
    config: ModelConfig,
    settings: Settings,
    memory_bytes: int,
    *,
    sizes: PageSizes | None = None,
    reads_tokens: bool = False,
) -> MemoryPlan:
    """Choose the number of blocks.

    Args:
        config: of the checkpoint.
        settings: limits; ``engine.num_blocks`` or ``engine.kv_cache_bytes`` decide if they are set,
            otherwise as many blocks as all running sequences can fill, within ``CACHE_SHARE``.
        memory_bytes: what this process may use on the device; 0: unknown, nothing is compared.
        sizes: None works them out.
        reads_tokens: the drafter wants the tokens of sequences.

    Raises:
        ConfigError: a limit is beyond the checkpoint, a step is too small for the running
            sequences, or one request of the longest length does not fit.
        NotSupported: a width does not fit a cache format.
    """
    engine = settings.engine
    sizes = sizes or page_sizes(config, settings, reads_tokens=reads_tokens)
    longest = _max_model_tokens(config, engine)
    if engine.max_num_batched_tokens < engine.max_num_seqs:
        raise ConfigError(
            f"engine.max_num_batched_tokens is {engine.max_num_batched_tokens}, below "
            f"engine.max_num_seqs {engine.max_num_seqs}: a step has no row for some sequences",
            hint="raise the one or lower the other",
        )
    drafted_rows = engine.max_num_seqs * (1 + settings.drafts)
    if engine.max_num_batched_tokens < drafted_rows:
        raise ConfigError(
            f"engine.max_num_batched_tokens is {engine.max_num_batched_tokens}, below the "
            f"{drafted_rows} rows of engine.max_num_seqs {engine.max_num_seqs} sequences with "
            f"{settings.drafts} drafts each",
            hint=f"set it to {drafted_rows} at least, or lower speculation.max_drafts",
        )
    num_slots = max(int(engine.max_num_seqs * engine.state_slots_ratio), engine.max_num_seqs) + 1
    taken_bytes = sizes.fixed_bytes + num_slots * sizes.state_bytes
    _check_room("state slots", "engine.max_num_seqs", taken_bytes, sizes, memory_bytes)
    left_bytes = memory_bytes - taken_bytes - _given_bytes(engine, sizes) if memory_bytes else None
    snapshots = _snapshot_slots(engine, sizes, left_bytes)
    num_slots += snapshots
    taken_bytes += snapshots * sizes.state_bytes
    _check_room("snapshots", "engine.snapshot_slots", taken_bytes, sizes, memory_bytes)
    num_blocks = _num_blocks(engine, sizes, longest, memory_bytes, taken_bytes)
    plan = MemoryPlan(
        sizes=sizes,
        max_model_tokens=longest,
        max_backtracking=backtracking(config, settings),
        num_blocks=num_blocks,
        num_slots=num_slots,
        snapshot_slots=snapshots,
    )
    _check_fit(plan, memory_bytes)
    return plan


def _check_room(what: str, key: str, taken_bytes: int, sizes: PageSizes, memory_bytes: int) -> None:
    """Refuse what does not even leave room for blocks, with what would help."""
    if not memory_bytes or taken_bytes <= memory_bytes:
        return
    recordings = ", recorded steps" if sizes.recordings_bytes else ""
    hint = "this checkpoint needs a device with more memory"
    if sizes.fixed_bytes < memory_bytes:
        hint = f"lower {key}"
    elif sizes.weights_bytes < memory_bytes:
        hint = "set engine.graphs = false, which records no steps"
    raise ConfigError(
        f"weights{recordings} and {what} need {taken_bytes} bytes, the device has {memory_bytes}",
        hint=hint,
    )


def _max_model_tokens(config: ModelConfig, engine: EngineSettings) -> int:
    context = config.text_config.max_position_embeddings
    longest = context if engine.max_model_len is None else engine.max_model_len
    if not 2 <= longest <= context:
        raise ConfigError(
            f"engine.max_model_len is {longest}, the checkpoint's context is {context} tokens",
            hint=f"set it from 2 to {context}, or leave it out",
        )
    return longest


def _snapshot_slots(engine: EngineSettings, sizes: PageSizes, left_bytes: int | None) -> int:
    """Slots for copies of states; without a setting they take a small share of what is left."""
    if engine.snapshot_slots is not None:
        return engine.snapshot_slots
    wanted = SNAPSHOTS_PER_SEQUENCE * engine.max_num_seqs
    if left_bytes is None:
        return wanted
    return min(wanted, max(0, int(left_bytes * SNAPSHOT_SHARE) // sizes.state_bytes))


def _given_bytes(engine: EngineSettings, sizes: PageSizes) -> int:
    """Bytes of blocks that the settings ask for; 0 if their number is derived."""
    if engine.num_blocks is not None:
        return engine.num_blocks * sizes.block_bytes
    return engine.kv_cache_bytes or 0


def _num_blocks(
    engine: EngineSettings, sizes: PageSizes, longest: int, memory_bytes: int, taken_bytes: int
) -> int:
    if engine.num_blocks is not None:
        return engine.num_blocks
    if engine.kv_cache_bytes is not None:
        return engine.kv_cache_bytes // sizes.block_bytes
    wanted = engine.max_num_seqs * _blocks_for(longest) + 1
    if not memory_bytes:
        return wanted
    left_bytes = max(0, memory_bytes - taken_bytes)
    return min(wanted, int(left_bytes * CACHE_SHARE) // sizes.block_bytes)


def _check_fit(plan: MemoryPlan, memory_bytes: int) -> None:
    usable = max(0, plan.num_blocks - 1)
    needed = _blocks_for(plan.max_model_tokens)
    if usable < needed:
        # Without a block there is no shorter length that helps.
        lower = f"lower engine.max_model_len to {usable * BLOCK_TOKENS}, or " if usable else ""
        raise ConfigError(
            f"one request of {plan.max_model_tokens} tokens needs {needed} blocks of "
            f"{plan.sizes.block_bytes} bytes, {usable} fit beside the dummy block",
            hint=f"{lower}give more with engine.num_blocks or engine.kv_cache_bytes",
        )
    if memory_bytes and plan.total_bytes > memory_bytes:
        raise ConfigError(
            f"weights, blocks and states need {plan.total_bytes} bytes, the device has "
            f"{memory_bytes}",
            hint="lower engine.num_blocks, engine.kv_cache_bytes or engine.max_num_seqs",
        )


def _blocks_for(tokens: int) -> int:
    return -(-tokens // BLOCK_TOKENS)
