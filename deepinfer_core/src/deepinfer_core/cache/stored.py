"""Which bytes of the caches can be stored, and of what use are they without the rest?"""

from __future__ import annotations

from deepinfer_core.cache.fingerprint import layout_fingerprint
from deepinfer_core.cache.keys import framed_digest
from deepinfer_core.cache.layout import CacheLayout, Region
from deepinfer_core.interfaces.kv_store import LAYOUT_BYTES, BlockGroup

__all__ = ["BLOCKS", "STATE", "WHOLE_STATE", "stored_groups"]

BLOCKS = "blocks"
"""Blocks of the pool without what lies behind their last region."""

STATE = "state"
"""The rings of the encoder half."""

WHOLE_STATE = "whole_state"
"""The rings of both halves and of the drafter."""


def stored_groups(
    layout: CacheLayout, *, truncates: bool, drafter: str = ""
) -> tuple[BlockGroup, BlockGroup]:
    """The group of blocks, and that of states at the ends of blocks.

    A prefix needs all of its blocks, and the last of its states, or some tokens are fed again in
    its place. Where a truncated decoder half is fed the last tokens of every prompt, nobody reads
    what its rings held before, nor the drafter's, which are made of what it gives; otherwise they
    are part of the state. At the end of a block no compressor has anything open, so their rings
    never are. States are of use for minutes and as large as a dozen blocks or two, so they are for
    stores in memory.

    Args:
        layout: of the caches.
        truncates: the decoder half is truncated.
        drafter: whose rings are part of states; empty: nobody's, they mean nothing.
    """
    block, state = layout.block, layout.state
    regions = (*block.entries.values(), *block.index_keys.values())
    fingerprint = layout_fingerprint(layout)
    rings = (*state.windows, *state.drafters)
    state_bytes = state.stored_bytes if truncates else max(ring.end_bytes for ring in rings)
    name, drafter = (STATE, "") if truncates else (WHOLE_STATE, drafter)
    content = framed_digest(b"sta1", fingerprint, name.encode(), drafter.encode())
    return (
        BlockGroup(
            name=BLOCKS,
            number_format=_formats(regions),
            layout=fingerprint,
            block_tokens=block.block_tokens,
            block_bytes=max(region.end_bytes for region in regions),
            reuse="leading",
            replay_tokens=0,
            retention="agent",
        ),
        BlockGroup(
            name=name,
            number_format=_formats(rings),
            layout=content[:LAYOUT_BYTES],
            block_tokens=block.block_tokens,
            block_bytes=state_bytes,
            reuse="last",
            replay_tokens=state.ring_tokens - layout.max_backtracking,
            retention="state",
        ),
    )


def _formats(regions: tuple[Region, ...]) -> str:
    return "+".join(sorted({region.number_format for region in regions}))
