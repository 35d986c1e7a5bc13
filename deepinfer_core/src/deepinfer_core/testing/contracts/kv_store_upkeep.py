"""Can single blocks of a store be described, listed and removed by whoever looks after them?"""

from __future__ import annotations

import hashlib

import pytest

from deepinfer_core.interfaces.kv_store import KvStore
from deepinfer_core.interfaces.kv_upkeep import BlockFacts, Departed, Upkeep
from deepinfer_core.testing.contracts.kv_store_suite import KvStoreSuite, block, chain, item, key
from deepinfer_core.testing.store_groups import BLOCKS, FOREVER, STATES

__all__ = ["KvStoreUpkeep"]

_DAY_S = 86_400.0
_OWNER = hashlib.sha256(b"owner").digest()


class KvStoreUpkeep(KvStoreSuite):
    """Calls of ``interfaces.kv_upkeep``, which a store may leave out."""

    @pytest.fixture
    def upkeep(self, store: KvStore) -> Upkeep:
        """The same store, seen from the other side."""
        if not isinstance(store, Upkeep):
            pytest.skip("the store does not offer the calls of interfaces.kv_upkeep")
        return store

    def test_a_block_is_described_by_what_it_was_stored_under(
        self, store: KvStore, upkeep: Upkeep
    ) -> None:
        """With the class that keeps it longest; nothing of one that is not there."""
        self.write(store, item("a", namespace=_OWNER, depth=7))
        self.write(store, item("b", namespace=_OWNER, depth=8, retention="chat"))
        keys = [key(name) for name in "abc"]
        facts = [
            BlockFacts(key=keys[0], namespace=_OWNER, depth=7, retention="agent"),
            BlockFacts(key=keys[1], namespace=_OWNER, depth=8, retention="chat"),
            None,
        ]
        assert upkeep.describe("blocks", keys, deadline_s=FOREVER) == facts
        assert upkeep.describe("state", keys, deadline_s=FOREVER) == [None] * 3
        assert upkeep.describe("blocks", keys, deadline_s=0.0) == [None] * 3
        self.write(store, item("a", namespace=_OWNER, depth=7, retention="chat"))
        self.settle(store)
        (described,) = upkeep.describe("blocks", keys[:1], deadline_s=FOREVER)
        assert described is not None
        assert described.retention in ("agent", "chat")  # noted at once, or with the next sweep

    @pytest.mark.parametrize("most", [1, 4, 5, 6])
    def test_a_survey_meets_every_block_once_in_order(
        self, store: KvStore, upkeep: Upkeep, most: int
    ) -> None:
        """Of one group, whatever is in the other."""
        self.write(store, *chain("text", 5, namespace=_OWNER))
        store.store("state", [item("text", STATES)], deadline_s=FOREVER)
        self.settle(store)
        seen: list[BlockFacts] = []
        while page := upkeep.survey(
            "blocks", after=seen[-1].key if seen else b"", most=most, deadline_s=FOREVER
        ):
            assert len(page) <= most
            seen += page
        keys = {key(("text", depth)): depth for depth in range(5)}
        assert [one.key for one in seen] == sorted(keys)
        assert all(one.depth == keys[one.key] for one in seen)
        assert {one.namespace for one in seen} == {_OWNER}
        assert upkeep.survey("blocks", after=b"", most=0, deadline_s=FOREVER) == []
        assert upkeep.survey("blocks", after=b"", most=9, deadline_s=0.0) == []

    def test_what_is_discarded_is_gone_and_can_be_stored_again(
        self, store: KvStore, upkeep: Upkeep
    ) -> None:
        """Only what was named, and only in its group."""
        self.write(store, *(item(name) for name in range(3)))
        store.store("state", [item(1, STATES)], deadline_s=FOREVER)
        self.settle(store)
        keys = [key(1), key("nobody"), key(1)]
        assert upkeep.discard("blocks", keys, deadline_s=0.0) == 0
        assert upkeep.discard("blocks", keys, deadline_s=FOREVER) == 1
        assert self.found(store, [0, 1, 2]) == ["hit", "miss", "hit"]
        assert self.read(store, 1, STATES) == "hit"
        assert store.report().removed == {"discarded": 1}
        assert self.write(store, item(1)) == ["stored"]
        assert self.read(store, 1) == "hit"

    def test_to_peek_reads_and_is_no_use(self, store: KvStore, upkeep: Upkeep) -> None:
        """Each block has its own outcome, and no outcome is counted."""
        self.write(store, item("a"), item("b"))
        store.store("state", [item("a", STATES)], deadline_s=FOREVER)
        self.settle(store)
        self.pass_time(2 * _DAY_S)
        room = [bytearray(BLOCKS.block_bytes) for _ in range(3)]
        names = ["a", "nobody", "b"]
        before = store.report().outcomes
        outcomes = upkeep.peek("blocks", [key(one) for one in names], room, deadline_s=FOREVER)
        assert [one.status for one in outcomes] == ["hit", "miss", "hit"]
        assert [bytes(room[0]), bytes(room[2])] == [block("a"), block("b")]
        assert store.report().outcomes == before
        (late,) = upkeep.peek("blocks", [key("a")], room[:1], deadline_s=0.0)
        assert late.status == "timeout"
        with pytest.raises(ValueError, match="bytes"):
            upkeep.peek("blocks", [key("a")], [bytearray(3)], deadline_s=FOREVER)
        self.pass_time(1.5 * _DAY_S)
        store.sweep(deadline_s=FOREVER)
        assert self.found(store, ["a", "b"]) == ["miss", "miss"]

    def test_to_peek_finds_damage_and_counts_it(self, store: KvStore, upkeep: Upkeep) -> None:
        """As reading does: the block can be stored again."""
        self.write(store, item("a"))
        self.flip(store, BLOCKS, "a", 8 * 300)
        room = bytearray(BLOCKS.block_bytes)
        (outcome,) = upkeep.peek("blocks", [key("a")], [room], deadline_s=FOREVER)
        assert outcome.status == "corrupt"
        assert store.report().outcomes["corrupt"] == 1
        assert self.write(store, item("a")) == ["stored"]
        assert self.read(store, "a") == "hit"

    def test_what_a_store_lets_go_by_itself_is_told_once(
        self, store: KvStore, upkeep: Upkeep
    ) -> None:
        """Not what others remove."""
        upkeep.departed()
        self.write(store, *(item(name) for name in range(3)), item("chat", retention="chat"))
        self.settle(store)
        upkeep.discard("blocks", [key(0)], deadline_s=FOREVER)
        self.pass_time(4 * _DAY_S)
        assert store.sweep(deadline_s=FOREVER) == 2
        gone = [Departed("blocks", key(name), "expired") for name in (1, 2)]
        assert sorted(upkeep.departed()) == sorted(gone)
        assert upkeep.departed() == []
        store.drop()
        assert upkeep.departed() == []

    def test_nothing_is_known_of_a_closed_store(self, component: KvStore) -> None:
        """And nothing is removed from it."""
        if not isinstance(component, Upkeep):
            pytest.skip("the store does not offer the calls of interfaces.kv_upkeep")
        assert component.describe("blocks", [key(0)], deadline_s=FOREVER) == [None]
        assert component.survey("blocks", after=b"", most=1, deadline_s=FOREVER) == []
        assert component.discard("blocks", [key(0)], deadline_s=FOREVER) == 0
        room = bytearray(BLOCKS.block_bytes)
        (outcome,) = component.peek("blocks", [key(0)], [room], deadline_s=FOREVER)
        assert outcome.status == "unavailable"
        assert component.departed() == []
