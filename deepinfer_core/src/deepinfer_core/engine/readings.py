"""What does an engine hold now, and what has it counted?"""

from __future__ import annotations

from deepinfer_core.engine.instruments import Readings
from deepinfer_core.engine.pages import Pages
from deepinfer_core.schedule.snapshot import Limits

__all__ = ["readings_of"]


def readings_of(
    pages: Pages, limits: Limits, running: int, waiting: int, preemptions: int
) -> Readings:
    """Look at the books; quick, and right from any thread.

    Args:
        pages: blocks and slots.
        limits: fixed sizes.
        running: sequences.
        waiting: sequences.
        preemptions: so far.
    """
    cache = pages.cache
    idle_blocks, free_blocks = cache.idle_blocks, cache.free_blocks
    return Readings(
        running=running,
        waiting=waiting,
        used_blocks=limits.usable_blocks - free_blocks,
        idle_blocks=idle_blocks,
        free_blocks=free_blocks - idle_blocks,
        used_slots=running,
        snapshots=cache.snapshot_slots,
        free_slots=pages.free_slots,
        preemptions=preemptions,
        store=None if pages.exchange is None else pages.exchange.figures(),
        **pages.counts()._asdict(),
    )
