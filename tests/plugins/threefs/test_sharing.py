"""Do stores that share a folder find each other's blocks, and outlive each other?"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from deepinfer_core.testing.contracts.kv_store_suite import chain, item, key
from deepinfer_core.testing.store_groups import FOREVER

# The blocks of the suite for stores, which loads more than a child needs.
WRITER = """
import sys
import hashlib, math
from deepinfer_core.interfaces.kv_store import BlockGroup, StoreItem
from deepinfer_core.stores.retention import Limits
from deepinfer_threefs.medium import PosixMedium
from deepinfer_threefs.place import StorePlace
from deepinfer_threefs.store import ThreefsStore

folder, durable = sys.argv[1:]
limits = Limits(capacity_bytes=1 << 30, retention_s={"agent": 1e6, "state": 1e6})
place = StorePlace(folder=folder, segment_bytes=1 << 20, durable=durable == "durable")
store = ThreefsStore(place, limits, medium=PosixMedium())
group = BlockGroup(
    name="blocks", number_format="bytes", layout=hashlib.sha256(b"blocks").digest()[:16],
    block_tokens=128, block_bytes=3888, reuse="leading", replay_tokens=0, retention="agent",
)
store.open([group])
text = 0
while True:
    items = [
        StoreItem(
            key=hashlib.sha256(f"key of {name}".encode()).digest(),
            data=hashlib.shake_128(f"blocks {name}".encode()).digest(3888),
            namespace=bytes(32),
            depth=depth,
        )
        for depth in range(7)
        for name in [(("child", text), depth)]
    ]
    outcomes = store.store("blocks", items, deadline_s=math.inf)
    assert {one.status for one in outcomes} == {"stored"}
    print(text, flush=True)
    text += 1
"""


def test_a_store_finds_what_another_one_stores_later(folder: Any, ask: Any) -> None:
    one, other = folder.open(), folder.open()
    assert ask.write(one, *chain("a", 20)) == ["stored"] * 20
    assert ask.found(other, ("a", 0)) == ["miss"]
    other.look(deadline_s=FOREVER)
    assert ask.read(other, *(("a", depth) for depth in range(20))) == ["hit"] * 20
    assert ask.write(one, item("b")) == ["stored"]
    other.look(deadline_s=FOREVER)
    assert ask.write(other, item("b")) == ["exists"]
    assert other.report().records == one.report().records == 21


def test_two_that_store_one_block_agree_which_file_has_it(folder: Any, ask: Any) -> None:
    one, other = folder.open(), folder.open()
    assert ask.write(one, item("a")) == ask.write(other, item("a")) == ["stored"]
    one.look(deadline_s=FOREVER)
    other.look(deadline_s=FOREVER)
    third = folder.open()
    paths = {
        store._opened.keeper.catalogue.place(("blocks", key("a"))).segment.path
        for store in (one, other, third)
    }
    assert len(paths) == 1
    assert [store.report().records for store in (one, other, third)] == [1, 1, 1]
    assert ask.read(one, "a") == ask.read(other, "a") == ask.read(third, "a") == ["hit"]


@pytest.mark.parametrize("is_written", [True, False])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_block_that_another_stores_meanwhile_lies_in_one_place_for_all(
    folder: Any, ask: Any, monkeypatch: pytest.MonkeyPatch, is_first: bool, is_written: bool
) -> None:
    one, other = folder.open(), folder.open()
    for store in (one, other) if is_first else (other, one):
        ask.write(store, item("begins a file"))
        folder.now_s += 1
    writer = one._opened.keeper._writer
    append = writer.append

    def meanwhile(group: Any, records: Any) -> Any:
        assert ask.write(other, item("a")) == ["stored"]
        one.look(deadline_s=FOREVER)
        if not is_written:
            raise OSError(errno.ENOSPC, "full")
        return append(group, records)

    monkeypatch.setattr(writer, "append", meanwhile)
    assert ask.write(one, item("a")) == (["stored"] if is_written else ["unavailable"])
    monkeypatch.undo()
    other.look(deadline_s=FOREVER)
    places = [store._opened.keeper.catalogue.place(("blocks", key("a"))) for store in (one, other)]
    assert places[0].segment.path == places[1].segment.path
    assert ask.read(one, "a") == ask.read(other, "a") == ["hit"]


def test_a_use_on_one_machine_keeps_a_block_on_all(folder: Any, ask: Any) -> None:
    one, other = folder.open(), folder.open()
    ask.write(one, item("used"), item("unused"))
    other.look(deadline_s=FOREVER)
    folder.now_s += 2 * 86400
    one.sweep(deadline_s=FOREVER)
    other.sweep(deadline_s=FOREVER)
    assert ask.read(other, "used") == ["hit"]
    other.sweep(deadline_s=FOREVER)  # writes it down
    folder.now_s += 1.5 * 86400
    one.sweep(deadline_s=FOREVER)  # the clock seems to have been set
    one.sweep(deadline_s=FOREVER)
    assert ask.found(one, "used", "unused") == ["hit", "miss"]
    again = folder.open()
    again.sweep(deadline_s=FOREVER)
    assert ask.found(again, "used") == ["hit"]


def test_uses_and_classes_survive_a_restart(folder: Any, ask: Any) -> None:
    store = folder.open()
    ask.write(store, item("touched"), item("left"), item("longer"))
    folder.now_s += 2 * 86400
    store.touch("blocks", [key("touched")])
    store.touch("blocks", [key("longer")], retention="chat")
    store.close()
    folder.now_s += 1.5 * 86400
    store = folder.open()
    store.sweep(deadline_s=FOREVER)  # the store was closed for long, so one sweep waits
    store.sweep(deadline_s=FOREVER)
    assert ask.found(store, "touched", "left", "longer") == ["hit", "miss", "hit"]
    folder.now_s += 3 * 86400
    store.sweep(deadline_s=FOREVER)
    assert ask.found(store, "touched", "longer") == ["miss", "hit"]


def test_what_is_dropped_on_one_machine_goes_on_all(folder: Any, ask: Any) -> None:
    one, other = folder.open(), folder.open()
    ours, theirs = bytes([1]) * 32, bytes([2]) * 32
    ask.write(one, *chain("a", 3, namespace=ours), *chain("b", 2, namespace=theirs))
    ask.write(other, *chain("c", 2, namespace=ours))
    assert one.drop(ours) == 5
    other.sweep(deadline_s=FOREVER)
    assert ask.found(other, ("a", 0), ("b", 0), ("c", 0)) == ["miss", "hit", "miss"]
    text = b"".join(file.read_bytes() for file in folder.files())
    assert item(("a", 0)).data not in text
    assert item(("c", 0)).data not in text
    folder.now_s += 60
    assert ask.write(one, *chain("a", 3, namespace=ours)) == ["stored"] * 3
    other.look(deadline_s=FOREVER)
    assert ask.read(other, ("a", 2)) == ["hit"]
    assert ask.found(folder.open(), ("a", 2), ("b", 1), ("c", 1)) == ["hit", "hit", "miss"]


def test_what_is_stored_again_behind_a_drop_stays(folder: Any, ask: Any) -> None:
    store = folder.open()
    ask.write(store, *chain("text", 20))
    assert store.drop() == 20
    assert folder.files() == []
    assert ask.write(store, *chain("text", 20)) == ["stored"] * 20
    store.look(deadline_s=FOREVER)
    assert ask.read(store, *(("text", depth) for depth in range(20))) == ["hit"] * 20


def test_what_was_written_while_it_was_dropped_elsewhere_goes_too(folder: Any, ask: Any) -> None:
    one, other, third = folder.open(), folder.open(), folder.open()
    ours = bytes([1]) * 32
    one.drop(ours)
    third.look(deadline_s=FOREVER)
    assert ask.write(other, item("a", namespace=ours)) == ["stored"]  # it has not heard of it yet
    third.look(deadline_s=FOREVER)
    assert ask.found(third, "a") == ["miss"]
    other.look(deadline_s=FOREVER)
    assert ask.found(other, "a") == ["miss"]
    folder.now_s += 60
    assert ask.write(other, item("a", namespace=ours)) == ["stored"]
    third.look(deadline_s=FOREVER)
    assert ask.read(third, "a") == ["hit"]


@pytest.mark.parametrize("durable", ["durable", "not"])
def test_a_writer_that_is_killed_leaves_all_that_it_stored(
    folder: Any, ask: Any, durable: str
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder.path), durable], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        texts = 0
        for line in child.stdout:
            texts = int(line) + 1
            if texts == 40:
                os.kill(child.pid, signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    store = folder.open(capacity_bytes=1 << 30)
    names = [(("child", text), depth) for text in range(texts) for depth in range(7)]
    assert ask.read(store, *names) == ["hit"] * len(names)
    behind = [(("child", texts), depth) for depth in range(7)]
    assert set(ask.read(store, *behind)) <= {"hit", "miss"}
    assert "corrupt" not in store.report().outcomes


def test_blocks_of_a_living_process_are_found(folder: Any, ask: Any) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder.path), "not"], stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "0\n"
            store = folder.open(capacity_bytes=1 << 30)
            assert ask.read(store, (("child", 0), 6)) == ["hit"]
            for line in child.stdout:
                if int(line) == 10:
                    break
            store.look(deadline_s=FOREVER)
            names = [(("child", 10), depth) for depth in range(7)]
            assert ask.read(store, *names) == ["hit"] * 7
        finally:
            child.kill()
