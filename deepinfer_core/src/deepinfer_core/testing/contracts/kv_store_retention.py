"""Does a store keep blocks as long as it should, and remove the right ones then?"""

from __future__ import annotations

import hashlib
from bisect import bisect_left

import pytest

from deepinfer_core.interfaces.kv_store import KvStore
from deepinfer_core.interfaces.store_report import AGE_BOUNDS_S
from deepinfer_core.testing.contracts.kv_store_suite import KvStoreSuite, chain, item, key
from deepinfer_core.testing.store_groups import BLOCKS, FOREVER, STATES

__all__ = ["KvStoreRetention"]

_DAY_S = 86_400.0
_ONE, _OTHER = (hashlib.sha256(name).digest() for name in (b"one", b"other"))


class KvStoreRetention(KvStoreSuite):
    """Time, room, quotas and purges."""

    def test_blocks_expire_by_their_class_behind_their_last_use(self, store: KvStore) -> None:
        """Agents' after three days, chats' after seven, states after three minutes."""
        self.write(store, item("agent"), item("chat", retention="chat"))
        store.store("state", [item("s", STATES)], deadline_s=FOREVER)
        self.pass_time(179.0)
        assert store.sweep(deadline_s=FOREVER) == 0
        self.pass_time(2.0)
        assert store.sweep(deadline_s=FOREVER) == 1
        assert self.read(store, "s", STATES) == "miss"
        self.pass_time(3 * _DAY_S - 182.0)
        assert store.sweep(deadline_s=FOREVER) == 0
        self.pass_time(2.0)
        assert store.sweep(deadline_s=FOREVER) == 1
        assert self.found(store, ["agent", "chat"]) == ["miss", "hit"]
        self.pass_time(4 * _DAY_S - 2.0)
        assert store.sweep(deadline_s=FOREVER) == 0
        self.pass_time(2.0)
        assert store.sweep(deadline_s=FOREVER) == 1
        assert self.found(store, ["chat"]) == ["miss"]
        assert store.report().removed == {"expired": 3}

    def test_ages_are_told_of_what_went_for_its_age(self, store: KvStore) -> None:
        """Time since the last use; a store that does not know it tells of none."""
        self.write(store, item("old"), item("dropped"))
        store.discard("blocks", [key("dropped")], deadline_s=FOREVER)  # type: ignore[attr-defined]
        self.pass_time(3.5 * _DAY_S)
        assert store.sweep(deadline_s=FOREVER) == 1
        report = store.report()
        if report.ages:
            assert set(report.ages) == {"expired"}
            bucket = bisect_left(AGE_BOUNDS_S, 3.5 * _DAY_S)
            assert [at for at, n in enumerate(report.ages["expired"].counts) if n] == [bucket]
            assert sum(report.ages["expired"].counts) == report.removed["expired"] == 1
            assert report.ages["expired"].total_s == pytest.approx(3.5 * _DAY_S, abs=3600.0)

    @pytest.mark.parametrize("use", ["load", "borrow", "touch", "store"])
    def test_every_use_puts_off_the_end(self, store: KvStore, use: str) -> None:
        """Looking for a block is none."""
        self.write(store, item("used"), item("unused"))
        self.pass_time(2 * _DAY_S)
        if use == "load":
            self.read(store, "used")
        elif use == "borrow":
            with store.borrow("blocks", [key("used")], deadline_s=FOREVER):
                pass
        elif use == "touch":
            store.touch("blocks", [key("nobody"), key("used")])
        else:
            self.write(store, item("used"))
        self.found(store, ["used", "unused"])
        self.pass_time(1.5 * _DAY_S)
        assert store.sweep(deadline_s=FOREVER) == 1
        assert self.found(store, ["used", "unused"]) == ["hit", "miss"]

    @pytest.mark.parametrize("by_touch", [True, False])
    @pytest.mark.parametrize(("first", "then"), [("agent", "chat"), ("chat", "agent")])
    def test_of_two_classes_the_longer_one_holds(
        self, store: KvStore, first: str, then: str, by_touch: bool
    ) -> None:
        """Whoever comes first."""
        self.write(store, item(0, retention=first))
        if by_touch:
            store.touch("blocks", [key(0)], retention=then)
        else:
            self.write(store, item(0, retention=then))
        self.pass_time(6 * _DAY_S)
        assert store.sweep(deadline_s=FOREVER) == 0
        assert self.found(store, [0]) == ["hit"]

    def test_a_sweep_without_time_removes_nothing(self, store: KvStore) -> None:
        """What it leaves goes with the next one."""
        self.write(store, item(0))
        self.pass_time(4 * _DAY_S)
        assert store.sweep(deadline_s=0.0) == 0
        assert self.found(store, [0]) == ["hit"]
        assert store.sweep(deadline_s=FOREVER) == 1

    def test_more_than_fits_makes_the_oldest_go(self, store: KvStore) -> None:
        """What was used last stays; nothing is taken beyond the capacity; no call fails."""
        texts = 0
        used = [(0, depth) for depth in range(8)]
        while not store.report().removed:
            assert self.write(store, *chain(texts, 8)) == ["stored"] * 8
            for name in used:
                assert self.read(store, name) == "hit"
            texts += 1
            self.pass_time(2 * 3600.0)
            assert texts < 512, "the store has more room than the suite asks for"
        report = store.report()
        assert report.used_bytes <= report.capacity_bytes
        assert report.removed.keys() == {"room"}
        last = [(texts - 1, depth) for depth in range(8)]
        assert self.found(store, [*used, *last]) == ["hit"] * 16
        assert self.found(store, [(1, 7)]) == ["miss"]

    def test_of_one_age_ends_of_texts_go_before_beginnings(self, store: KvStore) -> None:
        """What is left of each text is a leading run of its blocks."""
        texts = 0
        while store.report().used_bytes + 8 * 4096 <= store.report().capacity_bytes:
            self.write(store, *chain(texts, 8))
            texts += 1
        self.pass_time(61.0)
        self.write(store, *chain("last", 8))
        assert store.report().removed.keys() == {"room"}
        for text in range(texts):
            found = self.found(store, [(text, depth) for depth in range(8)])
            assert sorted(found) == found, "a hole"
            assert found[0] == "hit"
            assert found[-1] == "miss" or store.report().removed["room"] < texts

    def test_new_blocks_are_not_removed_for_newer_ones(self, store: KvStore) -> None:
        """What does not fit is refused then; a chain has no holes, and later there is room."""
        blocks = store.report().capacity_bytes // BLOCKS.block_bytes + 8
        statuses = self.write(store, *chain("long", blocks))
        kept = statuses.count("stored")
        assert statuses == ["stored"] * kept + ["unavailable"] * (blocks - kept)
        assert 8 <= kept < blocks
        names = [("long", depth) for depth in range(blocks)]
        assert self.found(store, names) == ["hit"] * kept + ["miss"] * (blocks - kept)
        assert store.report().removed == {}
        self.pass_time(61.0)
        assert self.write(store, item("short")) == ["stored"]

    def test_a_sweep_makes_room_before_it_is_needed(self, store: KvStore) -> None:
        """At nine tenths, down to less; not below."""
        capacity = store.report().capacity_bytes
        self.write(store, *chain("text", int(0.86 * capacity) // 4096))
        self.pass_time(61.0)
        assert store.sweep(deadline_s=FOREVER) == 0
        self.write(store, *chain("more", int(0.08 * capacity) // 4096 + 1))
        self.pass_time(61.0)
        assert store.sweep(deadline_s=FOREVER) > 0
        assert 0.75 * capacity < store.report().used_bytes < 0.9 * capacity

    def test_a_namespace_over_its_quota_makes_its_own_blocks_go(self, limited: KvStore) -> None:
        """Not those of others; while its own are new, it gets no more, nor does what is behind."""
        limited.open([BLOCKS, STATES])
        self.write(limited, *chain("other", 4, namespace=_OTHER))
        statuses = self.write(limited, *chain("one", 10, namespace=_ONE))
        kept = statuses.count("stored")
        assert statuses == ["stored"] * kept + ["unavailable"] * (10 - kept)
        assert 4 <= kept <= 8
        behind = [item("a", namespace=_ONE), item("b", namespace=_OTHER)]
        assert self.write(limited, *behind) == ["unavailable"] * 2
        assert self.found(limited, ["a", "b"]) == ["miss"] * 2
        self.pass_time(61.0)
        assert self.write(limited, *chain("two", 4, namespace=_ONE)) == ["stored"] * 4
        assert limited.report().removed.keys() == {"quota"}
        assert self.found(limited, [("other", depth) for depth in range(4)]) == ["hit"] * 4
        assert self.found(limited, [("one", kept - 1)]) == ["miss"]
        limited.close()

    def test_a_namespace_is_dropped_in_every_group(self, store: KvStore) -> None:
        """Others stay; its blocks can be stored again."""
        self.write(store, *chain("one", 3, namespace=_ONE), *chain("other", 2, namespace=_OTHER))
        store.store("state", [item("s", STATES, namespace=_ONE)], deadline_s=FOREVER)
        assert store.drop(_ONE) == 4
        assert self.found(store, [("one", 0), ("one", 2), ("other", 1)]) == ["miss", "miss", "hit"]
        assert self.read(store, "s", STATES) == "miss"
        assert store.drop(_ONE) == 0
        assert self.write(store, *chain("one", 3, namespace=_ONE)) == ["stored"] * 3
        assert store.report().removed == {"dropped": 4}

    def test_everything_is_dropped_at_once(self, store: KvStore) -> None:
        """No byte counts as taken then."""
        self.write(store, *chain("one", 3, namespace=_ONE), *chain("other", 2, namespace=_OTHER))
        assert store.drop() == 5
        report = store.report()
        assert (report.records, report.used_bytes) == (0, 0)
