"""Where in a segment of shared memory lies which slot? Pure arithmetic; both sides do it.

In front are the slots' generations, eight bytes each, then groups one after the other: first the
slots for blocks that arrive, then those for blocks that depart. A slot begins on a page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from deepinfer_core.errors import ConfigError
from deepinfer_core.interfaces.kv_store import BlockGroup

__all__ = ["GENERATION_BYTES", "PAGE_BYTES", "GroupSlots", "SegmentLayout", "segment_layout"]

PAGE_BYTES = 4096
GENERATION_BYTES = 8

_STATE_SHARE = 0.25
"""Of a budget, for states: one is a dozen blocks large, and a prefix has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSlots:
    """Slots of one group; numbers of those that depart follow on those that arrive.

    Attributes:
        block_bytes: of a block.
        arriving, departing: how many slots.
        offset_bytes: of the first one.
        first: of all the segment's slots, which one it is.
    """

    block_bytes: int
    arriving: int
    departing: int
    offset_bytes: int
    first: int

    @property
    def stride_bytes(self) -> int:
        """From one slot to the next."""
        return paged(self.block_bytes)

    @property
    def end_bytes(self) -> int:
        """Behind the last slot."""
        return self.offset_bytes + (self.arriving + self.departing) * self.stride_bytes

    def place(self, number: int) -> slice:
        """Where a slot's bytes lie."""
        begin = self.offset_bytes + number * self.stride_bytes
        return slice(begin, begin + self.block_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLayout:
    """All of a segment.

    Attributes:
        groups: by name.
        size_bytes: of the segment.
    """

    groups: Mapping[str, GroupSlots] = field(default_factory=dict)
    size_bytes: int


def paged(size_bytes: int) -> int:
    """Rounded up to whole pages."""
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES


def segment_layout(
    groups: Sequence[BlockGroup], *, arriving_bytes: int, departing_bytes: int
) -> SegmentLayout:
    """Share budgets out to groups: a quarter to states, if there are any.

    Args:
        groups: in order.
        arriving_bytes: for slots of blocks that arrive.
        departing_bytes: for slots of blocks that depart.

    Raises:
        ConfigError: a group gets no slot of a kind.
    """
    counts = {
        group.name: (
            _slots(group, groups, arriving_bytes, "fetch_bytes"),
            _slots(group, groups, departing_bytes, "write_bytes"),
        )
        for group in groups
    }
    offset = paged(GENERATION_BYTES * sum(map(sum, counts.values())))
    first, found = 0, {}
    for group in groups:
        arriving, departing = counts[group.name]
        found[group.name] = GroupSlots(
            block_bytes=group.block_bytes,
            arriving=arriving,
            departing=departing,
            offset_bytes=offset,
            first=first,
        )
        offset, first = found[group.name].end_bytes, first + arriving + departing
    return SegmentLayout(groups=found, size_bytes=offset)


def _slots(group: BlockGroup, groups: Sequence[BlockGroup], budget_bytes: int, setting: str) -> int:
    alike = sum(one.reuse == group.reuse for one in groups)
    share = _STATE_SHARE if group.reuse == "last" else 1.0 - _STATE_SHARE
    if alike == len(groups):
        share = 1.0
    slots = int(budget_bytes * share / alike) // paged(group.block_bytes)
    if not slots:
        raise ConfigError(
            f"engine.kv_store.{setting} is {budget_bytes}, and of"
            f" {int(budget_bytes * share / alike)} no block of {group.name} with"
            f" {group.block_bytes} bytes has room",
            hint=f"raise engine.kv_store.{setting}",
        )
    return slots
