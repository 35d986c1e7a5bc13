"""Which blocks are kept by a store that comes to harm? Numbered ones, that everybody can make.

Light: a process that is to be killed has little to load.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from deepinfer_core.interfaces.kv_store import BlockGroup, KvStore, Outcome, StoreItem
from deepinfer_core.testing.store_groups import BLOCKS, FOREVER

__all__ = ["WrongBytes", "borrowed", "loaded", "numbered"]


class WrongBytes(Exception):
    """A store handed out what nobody had stored."""


def numbered(number: int, group: BlockGroup = BLOCKS) -> StoreItem:
    """The block of a number, a text of its own; no two begin with the same 64 bytes."""
    return StoreItem(
        key=number.to_bytes(32, "little"),
        data=random.Random(f"{group.name} {number}").randbytes(group.block_bytes),
        namespace=bytes(32),
        depth=0,
    )


def loaded(store: KvStore, items: Sequence[StoreItem], group: BlockGroup = BLOCKS) -> list[Outcome]:
    """What becomes of blocks that are copied out.

    Raises:
        WrongBytes: of one.
    """
    room = [bytearray(group.block_bytes) for _ in items]
    keys = [one.key for one in items]
    outcomes = store.load(group.name, keys, room, deadline_s=FOREVER)
    for item, outcome, data in zip(items, outcomes, room, strict=True):
        if outcome.status == "hit" and data != item.data:
            raise WrongBytes(group.name)
    return outcomes


def borrowed(
    store: KvStore, items: Sequence[StoreItem], group: BlockGroup = BLOCKS
) -> list[Outcome]:
    """What becomes of blocks that are lent.

    Raises:
        WrongBytes: of one.
    """
    keys = [one.key for one in items]
    with store.borrow(group.name, keys, deadline_s=FOREVER) as lent:
        for item, one in zip(items, lent, strict=True):
            if one.data is not None and one.data != item.data:
                raise WrongBytes(group.name)
        return [one.outcome for one in lent]
