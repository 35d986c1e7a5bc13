"""Is a block that is not what was stored ever handed out?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from deepinfer_core.interfaces.kv_store import KvStore
from deepinfer_core.stores.records import HEADER_BYTES
from deepinfer_core.testing.contracts.kv_store_suite import KvStoreSuite, block, item, key
from deepinfer_core.testing.store_groups import BLOCKS, FOREVER, STATES

__all__ = ["KvStoreFaults"]

_HEADER_BITS = 8 * HEADER_BYTES
_BLOCK_BITS = 8 * BLOCKS.block_bytes


class KvStoreFaults(KvStoreSuite):
    """Damage, and what other versions wrote."""

    @pytest.mark.parametrize(
        "bit",
        [
            *range(0, _HEADER_BITS, 59),
            _HEADER_BITS - 1,
            _HEADER_BITS,
            _HEADER_BITS + 1,
            _HEADER_BITS + _BLOCK_BITS // 2,
            _HEADER_BITS + _BLOCK_BITS - 1,
        ],
    )
    def test_a_flipped_bit_is_found_and_the_block_can_be_stored_again(
        self, store: KvStore, bit: int
    ) -> None:
        """Anywhere in the record; its neighbours are served."""
        self.write(store, item(0), item(1), item(2))
        self.flip(store, BLOCKS, 1, bit)
        buffers = [bytearray(BLOCKS.block_bytes) for _ in range(3)]
        keys = [key(name) for name in range(3)]
        outcomes = store.load("blocks", keys, buffers, deadline_s=FOREVER)
        assert [one.status for one in outcomes] == ["hit", "corrupt", "hit"]
        assert [bytes(buffers[0]), bytes(buffers[2])] == [block(0), block(2)]
        assert outcomes[1].reason
        assert store.report().outcomes["corrupt"] == 1
        assert self.write(store, item(1)) == ["stored"]
        assert self.read(store, 1) == "hit"
        assert store.report().removed == {"damaged": 1}

    def test_a_damaged_block_is_not_lent(self, store: KvStore) -> None:
        """It has an outcome, and no bytes."""
        self.write(store, item(0), item(1))
        self.flip(store, BLOCKS, 0, _HEADER_BITS + 77)
        with store.borrow("blocks", [key(0), key(1)], deadline_s=FOREVER) as lent:
            assert [one.outcome.status for one in lent] == ["corrupt", "hit"]
            assert lent[0].data is None

    def test_blocks_of_another_layout_are_never_handed_out(self, component: KvStore) -> None:
        """They are in the way of nobody."""
        other = replace(BLOCKS, layout=bytes(16))
        component.open([BLOCKS, STATES])
        self.write(component, item(0))
        component.close()
        component.open([other, STATES])
        assert self.read(component, 0) in ("version", "miss")
        assert self.write(component, item(0)) == ["stored"]
        assert self.read(component, 0) == "hit"
        component.close()

    def test_blocks_of_another_length_are_never_handed_out(self, component: KvStore) -> None:
        """Nor is anything written beyond the shorter destination."""
        component.open([BLOCKS])
        self.write(component, item(0))
        component.close()
        shorter = replace(BLOCKS, block_bytes=BLOCKS.block_bytes - 1)
        component.open([shorter])
        destination = bytearray(shorter.block_bytes)
        (outcome,) = component.load("blocks", [key(0)], [destination], deadline_s=FOREVER)
        assert outcome.status in ("corrupt", "version", "miss")
        component.close()
