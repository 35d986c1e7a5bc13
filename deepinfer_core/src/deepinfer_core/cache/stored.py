"""Which bytes of the caches can be stored, and of what use are they without the rest?"""

from __future__ import annotations

from deepinfer_core.cache.fingerprint import layout_fingerprint
from deepinfer_core.cache.layout import CacheLayout, Region
from deepinfer_core.interfaces.kv_store import BlockGroup

__all__ = ["stored_groups"]


def stored_groups(layout: CacheLayout) -> tuple[BlockGroup, BlockGroup]:
    """The groups ``blocks`` and ``state``.

    ``blocks`` are blocks of the pool without what lies behind their last region: a prefix needs
    all of its own. ``state`` are the rings of the encoder half at the end of a block: a prefix
    needs the last one, or one window of tokens is fed again in its place. States are of use for
    minutes and as large as a dozen blocks, so they are for stores in memory.

    Args:
        layout: of the caches.
    """
    block, state = layout.block, layout.state
    regions = (*block.entries.values(), *block.index_keys.values())
    fingerprint = layout_fingerprint(layout)
    return (
        BlockGroup(
            name="blocks",
            number_format=_formats(regions),
            layout=fingerprint,
            block_tokens=block.block_tokens,
            block_bytes=max(region.end_bytes for region in regions),
            reuse="leading",
            replay_tokens=0,
            retention="agent",
        ),
        BlockGroup(
            name="state",
            number_format=_formats(state.windows),
            layout=fingerprint,
            block_tokens=block.block_tokens,
            block_bytes=state.stored_bytes,
            reuse="last",
            replay_tokens=state.ring_tokens - layout.max_backtracking,
            retention="state",
        ),
    )


def _formats(regions: tuple[Region, ...]) -> str:
    return "+".join(sorted({region.number_format for region in regions}))
