"""Do stores that share a folder find each other's blocks, and outlive each other?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.testing.contracts.kv_store_suite import FOREVER, chain, item, key
from deepinfer_threefs import keeping, scanner

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


def until(condition: Any, *, limit_s: float = 20.0) -> None:
    """Wait for another thread or process."""
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, "it did not come about"
        time.sleep(0.01)


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


def test_a_store_looks_by_itself(folder: Any, ask: Any) -> None:
    one, other = folder.open(), folder.open(refresh_s=0.01)
    ask.write(one, item("a"))
    until(lambda: ask.found(other, "a") == ["hit"])
    assert ask.read(other, "a") == ["hit"]


def test_a_look_that_runs_out_of_time_goes_on_with_the_next(folder: Any, ask: Any) -> None:
    one, other = folder.open(), folder.open()
    ask.write(one, *chain("a", 40))
    other.look(deadline_s=time.monotonic())
    assert ask.found(other, ("a", 0)) == ["miss"]
    looks = 0
    while ask.found(other, ("a", 39)) == ["miss"]:
        other.look(deadline_s=time.monotonic() + 2e-4)
        looks += 1
        assert looks < 10_000
    assert ask.read(other, *(("a", depth) for depth in range(40))) == ["hit"] * 40


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


def test_nothing_expires_before_all_uses_are_known(
    folder: Any, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = folder.open()
    ask.write(store, *chain("text", 20))
    folder.now_s += 2 * 86400
    ask.read(store, *(("text", depth) for depth in range(20)))
    store.close()
    folder.now_s += 1.5 * 86400
    monkeypatch.setattr(keeping, "_FIRST_LOOK_S", -1.0)
    late = folder.open()
    assert late.report().records == 0
    late._opened.keeper._watch.is_steady()
    with monkeypatch.context() as patch:
        patch.setattr(scanner.Scanner, "_read_journals", lambda self: None)
        patch.setattr(scanner, "is_late", lambda deadline_s: late.report().records > 10)
        assert late.sweep(deadline_s=FOREVER) == 0
        assert 10 < late.report().records <= 20
    assert late.sweep(deadline_s=FOREVER) == 0
    assert late.report().records == 20


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


def test_a_file_of_another_kind_is_left_alone(folder: Any, ask: Any) -> None:
    store = folder.open()
    ask.write(store, item("a"))
    strange = [
        folder.path / "blocks/0" / name
        for name in ("0123456789abcdef-00000001.seg", "notes.txt", "x.seg")
    ]
    for path in strange:
        path.write_bytes(b"something else")
    Path(folder.path / "README").write_text("of an operator")
    store.sweep(deadline_s=FOREVER)
    other = folder.open()
    assert ask.read(other, "a") == ["hit"]
    other.sweep(deadline_s=FOREVER)
    assert all(path.exists() for path in strange)
    assert not store.report().problem
