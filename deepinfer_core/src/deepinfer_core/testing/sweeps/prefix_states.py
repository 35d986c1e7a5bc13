"""Which part of a cached text is left when a prompt comes?

Each state brings the cache of an idle engine there, given the last boundary that a prompt can
reuse, and says how many leading blocks are left and which boundaries have a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable

from deepinfer_core.testing.beginnings import LONGEST
from deepinfer_core.testing.cached_prefix import CachedPrefix

__all__ = ["PARTIAL_STATES", "Arrange", "Left", "whole"]

Left = tuple[int, list[int]]
"""Leading blocks, boundaries with a snapshot."""

Arrange = Callable[[CachedPrefix, int, int], Left]
"""Takes the cached text, tokens of a block, and the boundary."""


def whole(prefix: CachedPrefix, size: int, end: int) -> Left:
    """Everything."""
    return LONGEST // size, [*range(size, LONGEST + 1, size)]


def _no_state(prefix: CachedPrefix, size: int, end: int) -> Left:
    prefix.drop_snapshots()
    return LONGEST // size, []


def _an_earlier_state(prefix: CachedPrefix, size: int, end: int) -> Left:
    prefix.drop_snapshots(behind=end - 2 * size)
    return LONGEST // size, [*range(size, end - 2 * size + 1, size)]


def _a_state_too_early(prefix: CachedPrefix, size: int, end: int) -> Left:
    # Five windows of 15 earlier keys reach back 75 tokens, in whole blocks 80: 96 is too far.
    prefix.drop_snapshots(behind=end - 6 * size)
    return LONGEST // size, [*range(size, end - 6 * size + 1, size)]


def _a_gap(prefix: CachedPrefix, size: int, end: int) -> Left:
    number = max(0, end // size - 3)
    prefix.drop_block(number)
    return number, [*range(size, number * size + 1, size)]


PARTIAL_STATES: dict[str, tuple[Arrange, bool]] = {
    "no state": (_no_state, True),
    "an earlier state": (_an_earlier_state, True),
    "a state too early": (_a_state_too_early, True),
    "a gap": (_a_gap, False),
}
"""By name, with whether tokens are fed again."""
