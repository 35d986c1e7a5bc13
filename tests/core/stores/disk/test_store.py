"""Does a store on a disk keep its books, its limits and its promises over time?"""

import math
import random
import struct
import threading
import time
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import lmdb
import numpy
import pytest
from deepinfer_core.errors import ConfigError, OtherFormat
from deepinfer_core.interfaces.kv_store import StoreItem
from deepinfer_core.interfaces.kv_upkeep import BlockFacts
from deepinfer_core.stores.disk import reader as reader_module
from deepinfer_core.stores.disk import writer as writer_module
from deepinfer_core.stores.disk.environment import Unusable, as_unusable
from deepinfer_core.stores.disk.index import address_of
from deepinfer_core.stores.disk.store import DiskStore
from deepinfer_core.testing.contracts.kv_store_suite import block, chain, item, key
from deepinfer_core.testing.store_groups import BLOCKS, FOREVER, STATES

DAY_S = 86_400.0


def statuses(store: DiskStore, *items: StoreItem) -> set[str]:
    return {one.status for one in store.store("blocks", items, deadline_s=FOREVER)}


def is_there(store: DiskStore, name: object) -> bool:
    (outcome,) = store.find("blocks", [key(name)], deadline_s=FOREVER)
    return outcome.status == "hit"


def read(store: DiskStore, name: object) -> str:
    copy = bytearray(BLOCKS.block_bytes)
    (outcome,) = store.load("blocks", [key(name)], [copy], deadline_s=FOREVER)
    assert outcome.status != "hit" or copy == block(name)
    return outcome.status


def described(store: DiskStore, *names: object) -> list[BlockFacts]:
    found = store.describe("blocks", [key(name) for name in names], deadline_s=FOREVER)
    return [facts for facts in found if facts is not None]


@pytest.mark.parametrize("number", range(4))
def test_whatever_is_called_in_whatever_order_the_books_are_right(
    place: Any, number: int, request: pytest.FixtureRequest
) -> None:
    chance = random.Random(zlib.crc32(request.node.name.encode()))
    owners = [bytes([number]) * 32 for number in range(3)]
    store = place.opened(quota_bytes=60 * 4096)
    for _ in range(60):
        text = chance.randrange(12)
        items = chain(text, chance.randint(1, 12), namespace=owners[text % 3])
        call = chance.randrange(8)
        if call < 3:
            statuses(store, *items)
        elif call == 3:
            for one in range(len(items)):
                read(store, (text, one))
        elif call == 4:
            retention = chance.choice(["", "agent", "chat"])
            store.touch("blocks", [one.key for one in items], retention=retention)
        elif call == 5:
            store.sweep(deadline_s=FOREVER)
        elif call == 6:
            store.drop(chance.choice(owners))
        else:
            store.store("state", [item(text, STATES, namespace=owners[0])], deadline_s=FOREVER)
        place.pass_time(chance.choice([1.0, 100.0, 5000.0, DAY_S]))
        if chance.random() < 0.1:
            store.close()
            store = place.opened(quota_bytes=60 * 4096)
        place.assert_books_are_right(store)
        assert store.report().used_bytes <= store.report().capacity_bytes


def test_many_times_what_fits_passes_through_a_map_of_fixed_size(place: Any) -> None:
    store = place.opened(young_s=0.0)
    for text in range(40):
        assert statuses(store, *chain(text, 50)) == {"stored"}
        assert is_there(store, (text, 0))
        place.pass_time(3600.0)
    # The capacity, a tenth, and 4 MiB.
    assert (place.folder / "data.mdb").stat().st_size <= 110 * 4096 + (4 << 20)
    place.assert_books_are_right(store)


def test_blocks_that_make_room_for_others_of_their_transaction_leave_the_books_right(
    place: Any,
) -> None:
    store = place.opened(young_s=0.0, capacity_bytes=20 * 4096)
    assert statuses(store, *chain("text", 60)) == {"stored"}
    assert store.report().records <= 20
    assert sum(store.report().removed.values()) == 60 - store.report().records
    place.assert_books_are_right(store)


def test_a_block_that_comes_twice_in_a_transaction_is_stored_once(place: Any) -> None:
    store = place.opened()
    twice = [item("a"), item("a"), item("a", retention="chat")]
    found = store.store("blocks", twice, deadline_s=FOREVER)
    assert [one.status for one in found] == ["stored", "exists", "exists"]
    assert [one.retention for one in described(store, "a")] == ["chat"]
    place.assert_books_are_right(store)


def test_all_of_a_namespace_goes_whatever_fits_a_transaction(
    place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_DROPPED_AT_ONCE", 4)
    store = place.opened()
    statuses(store, *chain("text", 9), item("other", namespace=bytes([7] * 32)))
    assert store.drop(item("a").namespace) == 9
    assert is_there(store, "other")
    place.assert_books_are_right(store)


@pytest.mark.parametrize("block_bytes", [3840, 113_920])
def test_blocks_begin_on_a_cache_line_of_the_map(place: Any, block_bytes: int) -> None:
    group = replace(BLOCKS, block_bytes=block_bytes)
    store = place.store(capacity_bytes=1 << 20)
    store.open([group])
    statuses(store, *(replace(one, data=bytes(block_bytes)) for one in chain("text", 3)))
    keys = [one.key for one in chain("text", 3)]
    with store.borrow("blocks", keys, deadline_s=FOREVER) as lent:
        for one in lent:
            assert numpy.frombuffer(one.data, dtype=numpy.uint8).ctypes.data % 64 == 0


def test_what_is_lent_stays_as_it_is_while_its_place_is_wanted(place: Any) -> None:
    store = place.opened(young_s=0.0)
    statuses(store, *chain("old", 90))
    seen: set[str] = set()
    with store.borrow("blocks", [key(("old", 3))], deadline_s=FOREVER) as lent:
        data = lent[0].data
        assert data is not None
        for text in range(40):
            place.pass_time(3600.0)
            seen |= statuses(store, *chain(text, 50))
        assert not is_there(store, ("old", 3))
        assert data == block(("old", 3))
    assert seen == {"stored", "unavailable"}
    place.pass_time(3600.0)
    assert statuses(store, *chain("new", 50)) == {"stored"}
    place.assert_books_are_right(store)


def test_what_was_lent_cannot_be_read_any_more(place: Any) -> None:
    store = place.opened()
    statuses(store, item("a"))
    with store.borrow("blocks", [key("a")], deadline_s=FOREVER) as lent:
        data = lent[0].data
    assert data is not None
    with pytest.raises(ValueError, match="released"):
        data[0]


def test_an_error_of_the_borrower_is_its_own_and_ends_the_loan(place: Any) -> None:
    store = place.opened()
    statuses(store, item("a"))
    with (
        pytest.raises(OSError, match="of the borrower"),
        store.borrow("blocks", [key("a")], deadline_s=FOREVER),
    ):
        raise OSError("of the borrower")
    store.close()


def test_closing_waits_for_what_is_lent(place: Any) -> None:
    store = place.opened()
    statuses(store, item("a"))
    with store.borrow("blocks", [key("a")], deadline_s=FOREVER) as lent:
        closing = threading.Thread(target=store.close)
        closing.start()
        closing.join(0.05)
        assert closing.is_alive()
        assert lent[0].data == block("a")
    closing.join()
    assert read(store, "a") == "unavailable"


def test_a_call_that_waits_for_another_writer_ends_at_its_deadline(place: Any) -> None:
    store = place.opened()
    assert store._opened is not None
    with store._opened.environment.writing(math.inf):
        late = time.monotonic() + 0.05
        (outcome,) = store.store("blocks", [item("a")], deadline_s=late)
        assert outcome.status == "timeout"
        assert store.sweep(deadline_s=time.monotonic() + 0.05) == 0
    assert statuses(store, item("a")) == {"stored"}


def test_a_load_whose_deadline_passes_ends_behind_the_block_at_hand(
    place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place.opened()
    items = chain("text", 4)
    statuses(store, *items)
    copies = [bytearray(BLOCKS.block_bytes) for _ in items]
    answers = iter([False, True])
    monkeypatch.setattr(reader_module, "is_late", lambda deadline_s: next(answers))
    found = store.load("blocks", [one.key for one in items], copies, deadline_s=FOREVER)
    assert [one.status for one in found] == ["hit", "hit", "timeout", "timeout"]
    assert not any(copies[2] + copies[3])


def test_uses_that_were_only_read_count_after_the_store_was_opened_again(place: Any) -> None:
    store = place.opened()
    statuses(store, item("used"), item("unused"))
    place.pass_time(2 * DAY_S)
    read(store, "used")
    statuses(store, item("other"))
    store.close()
    store = place.opened()
    place.pass_time(1.5 * DAY_S)
    assert store.sweep(deadline_s=FOREVER) == 1
    assert (is_there(store, "used"), is_there(store, "unused")) == (True, False)


def test_a_use_is_written_once_a_sixteenth_of_the_time(place: Any) -> None:
    store = place.opened()
    statuses(store, item("a"))
    assert store._opened is not None
    writer = store._opened.writer
    assert writer is not None
    place.pass_time(3 * DAY_S / 16 - 1)
    read(store, "a")
    assert writer.uses._uses == {}
    place.pass_time(1)
    read(store, "a")
    read(store, "a")
    assert len(writer.uses._uses) == 1


@pytest.mark.parametrize("jump_s", [4 * DAY_S, -4 * DAY_S])
def test_a_clock_that_is_set_removes_nothing_at_once(place: Any, jump_s: float) -> None:
    store = place.opened()
    statuses(store, item("a"))
    store.sweep(deadline_s=FOREVER)
    place.wall_s += jump_s
    assert store.sweep(deadline_s=FOREVER) == 0
    place.wall_s -= jump_s
    assert store.sweep(deadline_s=FOREVER) == 0
    assert is_there(store, "a")


def test_a_clock_that_stays_ahead_is_believed_by_the_second_sweep(place: Any) -> None:
    store = place.opened()
    statuses(store, item("a"))
    place.wall_s += 4 * DAY_S
    assert [store.sweep(deadline_s=FOREVER) for _ in range(2)] == [0, 1]


def test_a_store_that_was_closed_for_long_expires_with_its_second_sweep(place: Any) -> None:
    store = place.opened()
    statuses(store, item("a"))
    store.sweep(deadline_s=FOREVER)
    store.close()
    place.pass_time(4 * DAY_S)
    store = place.opened()
    assert [store.sweep(deadline_s=FOREVER) for _ in range(2)] == [0, 1]


def test_blocks_of_a_class_that_is_not_configured_any_more_expire(place: Any) -> None:
    store = place.opened()
    statuses(store, item("a", retention="chat"), item("b"))
    store.close()
    store = place.opened(retention_s={"agent": 3 * DAY_S, "state": 180.0})
    assert read(store, "a") == "hit"
    assert statuses(store, item("a", retention="agent")) == {"exists"}
    assert statuses(store, item("b")) == {"exists"}
    place.pass_time(2 * DAY_S)
    assert store.sweep(deadline_s=FOREVER) == 0
    place.assert_books_are_right(store)


def test_a_much_smaller_capacity_is_reached_step_by_step(place: Any) -> None:
    # The file, of 3,000 blocks, is larger than the new map of 100, a tenth, and 4 MiB.
    store = place.opened(capacity_bytes=4000 * 4096)
    assert statuses(store, *chain("text", 3000)) == {"stored"}
    store.close()
    place.pass_time(61.0)
    store = place.opened()
    assert statuses(store, item("a")) == {"unavailable"}
    assert store.sweep(deadline_s=FOREVER) > 2000
    assert statuses(store, item("a")) == {"stored"}
    assert store.report().used_bytes <= store.report().capacity_bytes
    assert is_there(store, ("text", 0))
    place.assert_books_are_right(store)


def test_a_block_that_was_made_good_meanwhile_is_not_removed(place: Any) -> None:
    store = place.opened()
    statuses(store, item("a"))
    assert store._opened is not None
    writer = store._opened.writer
    assert writer is not None
    writer.remove_damaged(BLOCKS, [key("a"), key("nobody")], FOREVER)
    assert read(store, "a") == "hit"
    assert store.report().removed == {}


@pytest.mark.parametrize(("record_bytes", "pages"), [(4080, 1), (4081, 2), (114_112, 28)])
def test_books_count_the_pages_that_the_map_gives(
    place: Any, record_bytes: int, pages: int
) -> None:
    group = replace(BLOCKS, block_bytes=record_bytes - 192)
    store = place.store(capacity_bytes=1 << 20)
    store.open([group])
    items = [replace(one, data=bytes(group.block_bytes)) for one in chain("text", 3)]
    assert statuses(store, *items) == {"stored"}
    assert store._opened is not None
    with store._opened.environment.reading() as txn:
        taken = txn.stat(store._opened.reader._index.records)["overflow_pages"]
    assert taken == 3 * pages
    assert store.report().used_bytes == 3 * pages * 4096


def test_a_value_that_has_become_empty_is_a_damaged_block(place: Any) -> None:
    store = place.opened()
    statuses(store, item("a"))
    opened = store._opened
    assert opened is not None
    with opened.environment.writing(math.inf) as txn:
        address = address_of("blocks", key("a"))
        txn.put(address, b"", db=opened.reader._index.records)
    assert read(store, "a") == "corrupt"
    assert read(store, "a") == "miss"


def test_a_smaller_capacity_makes_blocks_go(place: Any) -> None:
    store = place.opened()
    statuses(store, *chain("text", 90))
    store.close()
    place.pass_time(61.0)
    store = place.opened(capacity_bytes=50 * 4096)
    assert statuses(store, item("a")) == {"stored"}
    assert store.report().used_bytes <= 50 * 4096
    assert is_there(store, ("text", 0))
    place.assert_books_are_right(store)


def test_durable_stores_keep_blocks_too(place: Any) -> None:
    store = place.opened(durable=True)
    assert statuses(store, *chain("text", 5)) == {"stored"}
    assert read(store, ("text", 4)) == "hit"


def test_tables_of_another_form_are_emptied_by_the_writer(place: Any) -> None:
    store = place.opened()
    statuses(store, *chain("text", 5))
    opened = store._opened
    assert opened is not None
    with opened.environment.writing(math.inf) as txn:
        txn.put(b"form", b"0", db=opened.reader._index.totals)
    store.close()
    with pytest.raises(OtherFormat, match="another version"):
        place.opened(writes=False)
    store = place.opened()
    assert store.report().records == 0
    assert statuses(store, *chain("text", 5)) == {"stored"}
    place.assert_books_are_right(store)


def test_the_form_of_tables_stands_for_what_they_hold(place: Any) -> None:
    """Whoever changes an entry has to raise the form: folders of the old one are read otherwise."""
    store = place.opened()
    statuses(store, item("a", retention="chat", depth=3))
    opened = store._opened
    index, entries = opened.reader._index, {}
    with opened.environment.reading() as txn:
        form = bytes(txn.get(b"form", db=index.totals))
        for name in ("records", "facts", "ages", "owned", "expiry", "totals"):
            pairs = txn.cursor(db=getattr(index, name)).iternext()
            entries[name] = [(bytes(one), bytes(value)) for one, value in pairs]
    address, namespace = b"blocks\0" + key("a"), item("a").namespace
    [(filed_at, record)] = entries["records"]
    assert (form, filed_at) == (b"2", address)
    taken = 4096
    zeros = len(record) - len(record.lstrip(b"\0"))
    assert (zeros, record[zeros : zeros + 7]) == (0, b"DIblock")
    expires_s = int(place.wall_s + 7 * DAY_S)
    facts = struct.pack(
        "<32s16sddQIQ", namespace, b"chat", place.wall_s, place.wall_s, expires_s, 3, taken
    )
    assert entries["facts"] == [(address, facts)]
    step, depth = struct.pack(">Q", int(place.wall_s // 3600)), struct.pack(">I", 2**32 - 1 - 3)
    stored, taken_bytes = struct.pack("<d", place.wall_s), struct.pack("<Q", taken)
    assert entries["ages"] == [(step + depth + address, stored)]
    assert entries["owned"] == [(namespace + step + depth + address, stored)]
    assert entries["expiry"] == [(struct.pack(">Q", expires_s) + depth + address, b"\0")]
    assert dict(entries["totals"]) == {b"form": form, b"used": taken_bytes, namespace: taken_bytes}


def test_a_store_that_nobody_wrote_cannot_be_read(place: Any) -> None:
    with pytest.raises(ConfigError, match="cannot be opened"):
        place.opened(writes=False)
    place.folder.mkdir()
    with pytest.raises(ConfigError, match="nothing was stored there yet"):
        place.opened(writes=False)


def test_a_folder_that_cannot_be_made_is_an_error_with_its_name(place: Any) -> None:
    Path(place.folder).write_text("a file")
    for writes in (True, False):
        with pytest.raises(ConfigError, match=f"{place.folder} is a file, not a folder"):
            place.opened(writes=writes)


def test_more_than_the_disk_holds_is_refused_at_once(place: Any) -> None:
    with pytest.raises(ConfigError, match="lower capacity_bytes"):
        place.opened(capacity_bytes=1 << 60)
    place.opened()


def test_a_file_that_is_no_map_is_an_error(place: Any) -> None:
    place.folder.mkdir()
    (place.folder / "data.mdb").write_bytes(b"something else" * 1000)
    with pytest.raises(ConfigError, match="cannot be opened") as caught:
        place.opened()
    assert "the file is damaged" in caught.value.hint


def test_damage_that_shows_later_is_told_by_the_report(place: Any) -> None:
    """What cannot be listed or counted any more is no empty store."""
    store = place.opened()
    statuses(store, *chain("text", 5))
    with pytest.raises(Unusable), store._opened.environment.reading(), as_unusable():
        raise lmdb.CorruptedError("mdb_cursor_get: a page of another kind")
    assert "the file is damaged" in store.report().problem


@pytest.mark.parametrize(
    "error",
    [
        lmdb.PageFullError("mdb_put: Internal error - page has no more space"),
        lmdb.CursorFullError("mdb_get: Internal error - cursor stack limit reached"),
        struct.error("unpack requires a buffer of 84 bytes"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    ],
)
def test_what_only_damage_explains_is_told_as_damage(place: Any, error: Exception) -> None:
    store = place.opened()
    with pytest.raises(Unusable), store._opened.environment.reading(), as_unusable():
        raise error
    assert "the file is damaged" in store.report().problem


def test_an_index_entry_that_nobody_wrote_is_an_outcome_and_told(place: Any) -> None:
    store = place.opened()
    statuses(store, item("a"))
    opened = store._opened
    with opened.environment.writing(math.inf) as txn:
        txn.put(address_of("blocks", key("a")), b"short", db=opened.reader._index.facts)
    assert described(store, "a") == []
    assert "an entry of the index has changed: the file is damaged" in store.report().problem


def test_a_map_without_its_tables_is_damaged(place: Any) -> None:
    """The root of all tables points at a page of something else."""
    store = place.opened()
    statuses(store, *chain("text", 5))
    store.close()
    path = place.folder / "data.mdb"
    data = bytearray(path.read_bytes())
    data[2 * 4096 :] = b"\x55" * (len(data) - 2 * 4096)
    path.write_bytes(data)
    with pytest.raises(ConfigError, match="cannot be used") as caught:
        place.opened()
    assert "the file is damaged" in caught.value.hint


def test_ages_in_other_steps_than_those_of_the_disk_are_refused(place: Any) -> None:
    with pytest.raises(ValueError, match="count in"):
        place.store(age_step_s=60.0)
