"""Does each call of a store do what it says, for each block on its own?"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from deepinfer_core.errors import ConfigError
from deepinfer_core.interfaces.kv_store import KvStore
from deepinfer_core.testing.contracts.kv_store_suite import KvStoreSuite, block, chain, item, key
from deepinfer_core.testing.store_groups import BLOCKS, FOREVER, STATES

__all__ = ["KvStoreCalls"]

_GUARD = b"\xa5" * 64


class KvStoreCalls(KvStoreSuite):
    """Calls, one by one and many at once."""

    @pytest.mark.parametrize("count", [0, 1, 2, 15, 16, 17, 40])
    def test_what_is_stored_comes_back(self, store: KvStore, count: int) -> None:
        """In batches of every size; and looking for it finds it."""
        names = [("text", depth) for depth in range(count)]
        assert self.write(store, *chain("text", count)) == ["stored"] * count
        assert self.found(store, names) == ["hit"] * count
        destinations = [bytearray(BLOCKS.block_bytes) for _ in names]
        outcomes = store.load(
            "blocks", [key(name) for name in names], destinations, deadline_s=FOREVER
        )
        assert [one.status for one in outcomes] == ["hit"] * count
        assert destinations == [block(name) for name in names]

    def test_a_block_that_is_not_there_is_a_miss_of_its_own(self, store: KvStore) -> None:
        """Those around it are served."""
        self.write(store, item(0), item(2))
        assert self.found(store, [0, 1, 2]) == ["hit", "miss", "hit"]
        destinations = [bytearray(BLOCKS.block_bytes) for _ in range(3)]
        outcomes = store.load(
            "blocks", [key(name) for name in range(3)], destinations, deadline_s=FOREVER
        )
        assert [one.status for one in outcomes] == ["hit", "miss", "hit"]
        assert [bytes(destinations[0]), bytes(destinations[2])] == [block(0), block(2)]

    def test_the_first_writer_wins(self, store: KvStore) -> None:
        """Within one call and over several."""
        late = replace(item("a"), data=block("b"))
        assert self.write(store, item("a"), late) == ["stored", "exists"]
        assert self.write(store, late) == ["exists"]
        assert self.read(store, "a") == "hit"

    def test_two_groups_keep_one_key_apart(self, store: KvStore) -> None:
        """A block of one is none of the other."""
        self.write(store, item("a"))
        assert self.read(store, "a", STATES) == "miss"
        outcomes = store.store("state", [item("a", STATES)], deadline_s=FOREVER)
        assert [one.status for one in outcomes] == ["stored"]
        assert self.read(store, "a", STATES) == "hit"
        assert self.read(store, "a") == "hit"

    def test_nothing_beside_a_destination_is_written(self, store: KvStore) -> None:
        """A destination may be part of a larger buffer."""
        self.write(store, item("a"))
        buffer = bytearray(_GUARD + bytes(BLOCKS.block_bytes) + _GUARD)
        inner = memoryview(buffer)[len(_GUARD) : -len(_GUARD)]
        store.load("blocks", [key("a")], [inner], deadline_s=FOREVER)
        assert buffer == _GUARD + block("a") + _GUARD

    def test_a_store_keeps_copies(self, store: KvStore) -> None:
        """Neither the buffer that was stored nor the one that was loaded is part of it."""
        source = bytearray(block("a"))
        self.write(store, replace(item("a"), data=memoryview(source)))
        source[:] = bytes(len(source))
        destination = bytearray(BLOCKS.block_bytes)
        store.load("blocks", [key("a")], [destination], deadline_s=FOREVER)
        assert destination == block("a")
        destination[:] = bytes(len(destination))
        assert self.read(store, "a") == "hit"

    def test_what_is_lent_is_what_was_stored(self, store: KvStore) -> None:
        """It cannot be written to."""
        self.write(store, item("a"), item("c"))
        keys = [key(name) for name in "abc"]
        with store.borrow("blocks", keys, deadline_s=FOREVER) as lent:
            assert [one.outcome.status for one in lent] == ["hit", "miss", "hit"]
            first, none, last = (one.data for one in lent)
            assert none is None
            assert first is not None
            assert last is not None
            assert first.readonly
            assert (bytes(first), bytes(last)) == (block("a"), block("c"))

    @pytest.mark.parametrize("late_s", [0.0, 1.0, 1e9])
    def test_behind_its_deadline_a_call_does_nothing(self, store: KvStore, late_s: float) -> None:
        """Every block is late; and all of it can be done afterwards."""
        passed_s = time.monotonic() - late_s
        keys = [key(name) for name in range(2)]
        items = [item(name) for name in range(2)]
        buffers = [bytearray(BLOCKS.block_bytes) for _ in keys]
        stored = store.store("blocks", items, deadline_s=passed_s)
        assert self.write(store, *items) == ["stored"] * 2
        looked_for = store.find("blocks", keys, deadline_s=passed_s)
        loaded = store.load("blocks", keys, buffers, deadline_s=passed_s)
        with store.borrow("blocks", keys, deadline_s=passed_s) as lent:
            borrowed = [one.outcome for one in lent]
        for outcomes in (stored, looked_for, loaded, borrowed):
            assert [one.status for one in outcomes] == ["timeout"] * 2
            assert all(one.reason for one in outcomes)

    def test_no_deadline_is_too_far_away(self, store: KvStore) -> None:
        """Further than clocks of the system count."""
        buffer = bytearray(BLOCKS.block_bytes)
        [stored] = store.store("blocks", [item(0)], deadline_s=1e18)
        [found] = store.find("blocks", [key(0)], deadline_s=1e18)
        [loaded] = store.load("blocks", [key(0)], [buffer], deadline_s=1e18)
        assert [stored.status, found.status, loaded.status] == ["stored", "hit", "hit"]
        assert store.sweep(deadline_s=1e18) == 0

    def test_calls_that_make_no_sense_are_refused_and_do_nothing(self, store: KvStore) -> None:
        """Unknown groups; keys, buffers and blocks of other lengths; unknown classes."""
        good, size = item("a"), BLOCKS.block_bytes
        keys, room = [key("a")], [bytearray(size)]
        calls: list[Callable[[], object]] = [
            lambda: store.find("none", keys, deadline_s=FOREVER),
            lambda: store.find("blocks", [keys[0][:-1]], deadline_s=FOREVER),
            lambda: store.load("none", keys, room, deadline_s=FOREVER),
            lambda: store.load("blocks", [*keys, b""], room * 2, deadline_s=FOREVER),
            lambda: store.load("blocks", keys, [], deadline_s=FOREVER),
            lambda: store.load("blocks", keys, room * 2, deadline_s=FOREVER),
            lambda: store.load("blocks", keys, [bytearray(size - 1)], deadline_s=FOREVER),
            lambda: store.load("blocks", keys, [bytearray(size + 1)], deadline_s=FOREVER),
            lambda: store.load("blocks", keys, [memoryview(bytes(size))], deadline_s=FOREVER),
            lambda: store.store("none", [good], deadline_s=FOREVER),
            lambda: store.touch("none", keys),
            lambda: store.touch("blocks", [b""]),
            lambda: store.touch("blocks", keys, retention="none"),
            lambda: store.borrow("none", keys, deadline_s=FOREVER).__enter__(),
            lambda: store.borrow("blocks", [b""], deadline_s=FOREVER).__enter__(),
        ]
        for fields in (
            {"key": b""},
            {"namespace": b""},
            {"data": b""},
            {"data": block("a") + b"x"},
            {"depth": -1},
            {"depth": 2**32},
            {"retention": "none"},
        ):
            bad = replace(good, **fields)
            calls.append(lambda bad=bad: store.store("blocks", [good, bad], deadline_s=FOREVER))  # type: ignore[misc]
        for number, call in enumerate(calls):
            with pytest.raises(ValueError, match=r"."):
                call()
            assert self.found(store, ["a"]) == ["miss"], number

    def test_a_store_opens_once(self, store: KvStore) -> None:
        """Another opening is a mistake."""
        with pytest.raises(ValueError, match=r"."):
            store.open([BLOCKS])
        assert set(store.groups) == {"blocks", "state"}

    def test_groups_that_do_not_fit_are_refused(self, component: KvStore) -> None:
        """Two with one name, one of an unknown class, one whose blocks are too long."""
        with pytest.raises(ValueError, match=r"."):
            component.open([BLOCKS, replace(STATES, name="blocks")])
        with pytest.raises(ConfigError):
            component.open([replace(BLOCKS, retention="none")])
        longest = component.capabilities.max_block_bytes
        with pytest.raises(ConfigError):
            component.open([replace(BLOCKS, block_bytes=longest + 1)])
        component.open([BLOCKS])
        component.close()

    def test_a_closed_store_is_unavailable(self, component: KvStore) -> None:
        """Before it was opened and after; it may be closed twice, and opened again."""
        for _ in range(2):
            component.close()
            assert dict(component.groups) == {}
            assert component.report().problem
            buffers = [bytearray(BLOCKS.block_bytes)]
            for outcomes in (
                component.find("blocks", [key(0)], deadline_s=FOREVER),
                component.load("blocks", [key(0)], buffers, deadline_s=FOREVER),
                component.store("blocks", [item(0)], deadline_s=FOREVER),
            ):
                assert [one.status for one in outcomes] == ["unavailable"]
                assert outcomes[0].reason
            with component.borrow("blocks", [key(0)], deadline_s=FOREVER) as lent:
                assert lent[0].outcome.status == "unavailable"
                assert lent[0].data is None
            component.touch("blocks", [key(0)])
            assert component.sweep(deadline_s=FOREVER) == 0
            component.open([BLOCKS])
            self.write(component, item(0))
            assert self.read(component, 0) == "hit"
            assert not component.report().problem
            component.close()

    def test_a_persistent_store_finds_everything_again(self, component: KvStore) -> None:
        """All groups, by another object."""
        if not component.capabilities.is_persistent:
            pytest.skip("the store does not promise to be persistent")
        component.open([BLOCKS, STATES])
        self.write(component, *chain("text", 20))
        component.store("state", [item("text", STATES)], deadline_s=FOREVER)
        component.close()
        store = self.again()
        store.open([STATES, BLOCKS])
        assert all(self.read(store, ("text", depth)) == "hit" for depth in range(20))
        assert self.read(store, "text", STATES) == "hit"
        assert store.report().records == 21
        store.close()

    def test_threads_may_write_and_read_the_same_blocks(self, store: KvStore) -> None:
        """One of them has stored each block, and nobody ever reads half a one."""
        names = range(16)

        def work(worker: int) -> tuple[list[str], list[str]]:
            order = [*names][worker:] + [*names][:worker]
            stored = [self.write(store, item(name))[0] for name in order]
            return stored, [self.read(store, name) for name in reversed(order)]

        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(work, range(4)))
        assert [status for stored, _ in results for status in stored].count("stored") == len(names)
        assert {status for _, read in results for status in read} == {"hit"}

    def test_outcomes_are_counted_but_for_looking(self, store: KvStore) -> None:
        """And the bytes of a block are at least its own."""
        before = store.report()
        assert (before.records, before.outcomes, before.removed) == (0, {}, {})
        self.write(store, item(0), item(1), item(0))
        self.read(store, 0)
        self.read(store, 2)
        self.found(store, [0, 3])
        report = store.report()
        assert report.outcomes == {"stored": 2, "exists": 1, "hit": 1, "miss": 1}
        assert report.records == 2
        assert 2 * BLOCKS.block_bytes <= report.used_bytes <= report.capacity_bytes

    def test_no_reason_tells_a_key(self, store: KvStore) -> None:
        """Keys are hashes of prompts."""
        store.store("blocks", [item(0)], deadline_s=0.0)
        buffers = [bytearray(BLOCKS.block_bytes)]
        for outcome in (
            *store.load("blocks", [key(0)], buffers, deadline_s=FOREVER),
            *store.store("blocks", [item(0)], deadline_s=0.0),
        ):
            assert outcome.reason
            assert key(0).hex()[:9] not in outcome.reason
