"""How many bytes does each thing that an engine holds take?

Weights count with the bytes that the checkpoint stores; a component that keeps them in a wider form
needs more. On a CPU, recorded decode steps count with the most that they may keep, whichever
components are chosen. On other devices they share memory, as activations do.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    "PageSizes",
    "backtracking",
    "max_model_tokens",
    "page_sizes",
    "planned_layout",
]

BLOCK_TOKENS = 128
"""Tokens of a block, as in the published engine: prefixes are shared in these units."""


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
    longest = max_model_tokens(config, settings.engine)
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


def max_model_tokens(config: ModelConfig, engine: EngineSettings) -> int:
    """Tokens of the longest prompt and output together: what is configured, or the context.

    Raises:
        ConfigError: it is beyond the checkpoint.
    """
    context = config.text_config.max_position_embeddings
    longest = context if engine.max_model_len is None else engine.max_model_len
    if not 2 <= longest <= context:
        raise ConfigError(
            f"engine.max_model_len is {longest}, the checkpoint's context is {context} tokens",
            hint=f"set it from 2 to {context}, or leave it out",
        )
    return longest
