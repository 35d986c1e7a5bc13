"""What do several samples of one prompt share once the first of them has computed it?

The first sample's prompt is cut in front of its last row. When the rows before it are computed, its
blocks get one more user and its state is copied to a slot of its own: a *fork*. Every other sample
starts there: it shares the whole blocks, takes a copy of the last, partly filled one, and feeds the
last row of the prompt itself, to draw with its own seed.

A fork is a convenience, not a promise: it is given up when blocks are short, and samples that find
none start like any request.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Fork"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A computed prompt without its last row, kept for other samples.

    Attributes:
        tokens: rows that are computed.
        block_ids: their blocks, held.
        state_slot: copy of the state behind them, held.
        published: leading blocks that are in the prefix cache.
        cached_end, valid_start, is_exact: as in ``Sequence``.
    """

    tokens: int
    block_ids: tuple[int, ...]
    state_slot: int
    published: int
    cached_end: int
    valid_start: int
    is_exact: bool
