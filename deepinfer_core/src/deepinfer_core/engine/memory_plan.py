"""Does the memory suffice, and how many blocks and slots does the engine get?

Arithmetic only, from the checkpoint's config, the settings and what the device has; done before any
weight is read. ``engine.page_sizes`` says what one of each takes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from deepinfer_core.config.settings import EngineSettings, Settings
from deepinfer_core.engine.page_sizes import (
    BLOCK_TOKENS,
    PageSizes,
    backtracking,
    max_model_tokens,
    page_sizes,
)
from deepinfer_core.errors import ConfigError
from deepinfer_core.model.config import ModelConfig

__all__ = [
    "CACHE_SHARE",
    "SNAPSHOTS_PER_SEQUENCE",
    "SNAPSHOT_SHARE",
    "MemoryPlan",
    "plan_memory",
]

CACHE_SHARE = 0.5
"""Part of the memory left beside the weights that blocks may take when nobody sets their number;
the rest is for activations, logits and whatever else runs on the machine."""

SNAPSHOTS_PER_SEQUENCE = 4
"""Copies of states that are kept for each running sequence when nobody sets their number: a few
turns of a conversation and a shared beginning each."""

SNAPSHOT_SHARE = 0.1
"""Part of the memory left beside weights and running states that these copies may take."""


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
    longest = max_model_tokens(config, engine)
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
