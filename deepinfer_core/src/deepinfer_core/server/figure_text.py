"""How are metrics written while answers go on?

The text of all of them takes milliseconds. It is made a metric at a time, and whatever the event
loop has to do comes between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from deepinfer_core.telemetry.board import Series
from deepinfer_core.telemetry.registry import family_texts

__all__ = ["text_of"]


async def text_of(series: Iterable[Series]) -> str:
    """A copy of a board in the Prometheus text format."""
    parts = []
    for text in family_texts(series):
        parts.append(text)
        await asyncio.sleep(0)
    return "".join(parts)
