"""Is every record that changes behind a store's back noticed, and counted?

Each fault has blocks of its own: three are stored, the one in the middle is damaged, all are read.
The two beside it must come back; the damaged one must be right or be said not to be; and some
report must count it. Then it is stored again, and must come back.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from deepinfer_core.interfaces.kv_store import BlockGroup, KvStore, StoreItem
from deepinfer_core.stores.records import HEADER_BYTES
from deepinfer_core.testing.store_faults.blocks import borrowed, loaded, numbered
from deepinfer_core.testing.store_faults.targets import Place, Target, counted, find_place
from deepinfer_core.testing.store_groups import BLOCKS, FOREVER, STATES

__all__ = ["FIELDS", "FaultReport", "damage_records"]

FIELDS = {
    "magic": (0, 8), "version": (8, 2), "header_bytes": (10, 2), "header_crc": (12, 4),
    "layout": (16, 16), "group": (32, 16), "key": (48, 32), "namespace": (80, 32),
    "retention": (112, 16), "depth": (128, 4), "checksum_kind": (132, 2), "zeros": (134, 2),
    "written": (136, 8), "data_bytes": (144, 8), "checksum": (152, 16), "padding": (168, 24),
    "data": (HEADER_BYTES, BLOCKS.block_bytes),
}  # fmt: skip
"""Offset and bytes of what a record consists of; see ``stores.records``."""

_DROPPED_EVERY = 64
_WAIT_S = 30.0


@dataclass(slots=True, kw_only=True)
class FaultReport:
    """What faults led to.

    Attributes:
        injected: faults by kind.
        outcomes: of blocks that were harmed, when they were read.
        uncounted: faults that were not in the report of the part that had the record.
    """

    injected: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    uncounted: int = 0

    def add(self, other: FaultReport) -> None:
        """Count those of another one as well."""
        self.injected.update(other.injected)
        self.outcomes.update(other.outcomes)
        self.uncounted += other.uncounted


Damage = Callable[[random.Random, Place, int], None]


def _flip(offset: int, size: int) -> Damage:
    def act(draw: random.Random, place: Place, data_bytes: int) -> None:
        bit = draw.randrange(8 * min(size, HEADER_BYTES + data_bytes - offset))
        at = offset + bit // 8
        [old] = place.read(at, 1)
        place.write(at, bytes([old ^ 1 << bit % 8]))

    return act


def _torn(draw: random.Random, place: Place, data_bytes: int) -> None:
    """What lies behind some byte was never written: zeros, or what had been there."""
    size = HEADER_BYTES + data_bytes
    at = draw.randrange(1, size - 8)
    left = size - at
    place.write(at, bytes(left) if draw.random() < 0.5 else draw.randbytes(left))


def _lost_sector(draw: random.Random, place: Place, data_bytes: int) -> None:
    """512 bytes in the middle hold what belongs elsewhere."""
    at = draw.randrange((HEADER_BYTES + data_bytes) // 512) * 512
    size = min(512, HEADER_BYTES + data_bytes - at)
    place.write(at, draw.randbytes(size))


KINDS: dict[str, Damage] = {
    **{f"flip {name}": _flip(*where) for name, where in FIELDS.items()},
    "torn": _torn,
    "lost sector": _lost_sector,
}


def damage_records(target: Target, count: int, seed: int) -> FaultReport:
    """Damage so many records of an open store, one after the other, every kind in turn.

    Raises:
        WrongBytes: the store handed out something else than was stored.
        AssertionError: a block that was not harmed, or was stored again, did not come back.
    """
    draw, report = random.Random(seed), FaultReport()
    for number in range(count):
        kind = list(KINDS)[number % len(KINDS)]
        group = STATES if draw.random() < 0.25 else BLOCKS
        items = [numbered(3 * number + one, group) for one in range(3)]
        outcomes = target.store.store(group.name, items, deadline_s=FOREVER)
        assert {one.status for one in outcomes} == {"stored"}, outcomes
        part = draw.choice([one for one in target.parts if group.name in one.groups])
        _wait_for(part, group, items[1].key)
        place = find_place(part, group, items[1].key, bytes(items[1].data), target.folder)
        before = counted(part)
        KINDS[kind](draw, place, part.groups[group.name].block_bytes)
        if target.is_tiered:
            _forget_above(target, part, group, items)
        report.outcomes[_read_all(target, group, items, borrows=draw.random() < 0.5)] += 1
        report.uncounted += not _is_counted(part, before)
        report.injected[kind] += 1
        if number % _DROPPED_EVERY == _DROPPED_EVERY - 1:
            target.store.drop()
    return report


def _wait_for(part: KvStore, group: BlockGroup, wanted: bytes) -> None:
    """Until a block has been moved there."""

    def is_there() -> bool:
        return part.find(group.name, [wanted], deadline_s=FOREVER)[0].status == "hit"

    assert _comes_to(is_there), "a block did not come to a part"


def _is_counted(part: KvStore, before: int) -> bool:
    return _comes_to(lambda: counted(part) > before)


def _comes_to(is_so: Callable[[], bool]) -> bool:
    """Whether something becomes so; parts may be behind the whole."""
    end_s = time.monotonic() + _WAIT_S
    while not is_so():
        if time.monotonic() > end_s:
            return False
        time.sleep(1e-3)
    return True


def _forget_above(
    target: Target, part: KvStore, group: BlockGroup, items: Sequence[StoreItem]
) -> None:
    """What faster parts have would hide the damage."""
    for one in target.parts[: target.parts.index(part)]:
        for item in items:
            _wait_for(part, group, item.key)
        one.drop()


def _read_all(
    target: Target, group: BlockGroup, items: Sequence[StoreItem], *, borrows: bool
) -> str:
    """What became of the block in the middle."""
    found = (borrowed if borrows else loaded)(target.store, items, group)
    assert [found[0].status, found[2].status] == ["hit", "hit"], found
    again = target.store.store(group.name, [items[1]], deadline_s=FOREVER)
    assert again[0].status in ("stored", "exists"), again
    assert loaded(target.store, [items[1]], group)[0].status == "hit"
    return found[1].status
