"""When do blocks that are held for convenience have to make room?

The policy counts on every block that no running sequence holds. Some are held all the same: what
came from a store for a sequence that waits, what waits to be stored, a prompt that was computed for
several samples. They are let go where a step could need them, and no sooner: what is let go may be
overwritten by that very step, and would have to be computed.
"""

from __future__ import annotations

from collections.abc import Iterable

from deepinfer_core.schedule.snapshot import Limits, SequenceView, Snapshot

__all__ = ["is_short", "lacks_room", "owed_blocks"]


def is_short(snapshot: Snapshot) -> bool:
    """Whether a sequence that is served whatever is free may lack blocks in the next step."""
    limits, running, free_blocks = snapshot.limits, snapshot.running, snapshot.free_blocks
    if not running:
        return lacks_room(snapshot)  # the first that waits is let in
    if not limits.may_preempt(len(running), free_blocks):
        return False
    return owed_blocks(limits, running) > free_blocks


def lacks_room(snapshot: Snapshot) -> bool:
    """Whether blocks are short for the first in rank of those that wait and are ready."""
    for view in snapshot.waiting:
        if view.is_ready:
            missing = snapshot.limits.lacking(view.known_tokens, view.block_count)
            return missing + view.idle_blocks > snapshot.free_blocks
    return False


def owed_blocks(limits: Limits, running: Iterable[SequenceView]) -> int:
    """Blocks that running sequences lack for all that they know, and for drafts behind it."""
    drafts = limits.rows_each - 1
    return sum(
        limits.lacking(view.known_tokens + drafts, view.block_count)
        for view in running
        if view.known_tokens > view.computed_tokens
    )
