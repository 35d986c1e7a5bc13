"""How does a test give a small engine a store?"""

from __future__ import annotations

from deepinfer_core.cache.stored import stored_groups
from deepinfer_core.engine.stored.limits import StoreLimits
from deepinfer_core.interfaces.kv_store import BlockGroup
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.caches import model_cache_layout
from deepinfer_core.testing.small_engines import EngineShape

__all__ = ["PATIENT", "small_groups"]

PATIENT = StoreLimits(match_timeout_s=60.0, fetch_timeout_s=60.0, patience=1e9)
"""Wait for a store however long it takes, so that nothing depends on how fast anything is."""


def small_groups(model: TextModel, shape: EngineShape) -> tuple[BlockGroup, BlockGroup]:
    """The groups that a small engine stores: blocks, and states.

    Args:
        model: of the engine, which has no drafter.
        shape: of the engine.
    """
    layout = model_cache_layout(
        model.config,
        model.parts.numerics,
        model.parts.codec,
        max_backtracking=model.config.verified_rows,
        block_tokens=shape.block_tokens,
    )
    return stored_groups(layout, truncates=shape.truncation is not None)
