"""Is room given back, beside readers and after crashes, without losing what is kept?"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.testing.contracts.kv_store_suite import block, chain, item, key
from deepinfer_core.testing.store_groups import BLOCKS, FOREVER, STATES
from deepinfer_threefs import medium
from deepinfer_threefs.collector import ABANDONED_S
from deepinfer_threefs.writer import IDLE_S

PAGE = 4096
DAY_S = 86400.0


class Crash(BaseException):
    """The process ends here."""


class CrashAt:
    """Ends the process at the call of a number, counted over all of them."""

    def __init__(self, number: int) -> None:
        self.number, self.calls = number, 0

    def before(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls <= self.number:
                return call(*args, **options)
            if name == "pwritev":  # torn
                os.pwrite(args[0], b"".join(args[1])[:1234], args[2])
            raise Crash

        return counted


def names(text: object, *depths: int) -> list[Any]:
    return [(text, depth) for depth in depths]


def expire_all_but(folder: Any, store: Any, ask: Any, *kept: Any) -> None:
    """Let all blocks expire that are not used meanwhile."""
    folder.now_s += 2 * DAY_S
    ask.read(store, *kept)
    store.sweep(deadline_s=FOREVER)
    folder.now_s += 1.5 * DAY_S
    store._opened.keeper._watch.is_steady()
    store.sweep(deadline_s=FOREVER)


@pytest.fixture
def no_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that makes none."""

    def refuse(self: Any, fd: int, spans: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(medium.PosixMedium, "punch", refuse)


def test_a_file_without_blocks_that_count_is_removed(folder: Any, ask: Any) -> None:
    store = folder.open()
    ask.write(store, *chain("text", 40))
    assert len(folder.files()) == 3
    folder.now_s += 4 * DAY_S
    ask.write(store, item("new"))
    assert store.sweep(deadline_s=FOREVER) == 40
    assert len(folder.files()) == 1
    assert ask.read(store, "new") == ["hit"]


def test_holes_are_made_where_blocks_were(folder: Any, ask: Any) -> None:
    store = folder.open(segment_bytes=1 << 20)
    ask.write(store, *chain("text", 40))
    before = folder.allocated_bytes()
    kept = names("text", *range(0, 40, 2))
    expire_all_but(folder, store, ask, *kept)
    seal = PAGE
    assert folder.allocated_bytes() <= before - 20 * PAGE + seal
    assert ask.read(store, *kept) == ["hit"] * 20
    again = folder.open()
    assert again.report().records == 20
    assert ask.read(again, *kept) == ["hit"] * 20


@pytest.mark.parametrize(("live", "is_moved"), [(1, True), (3, True), (4, False), (15, False)])
def test_below_a_quarter_a_file_is_written_anew(
    folder: Any, ask: Any, no_holes: None, live: int, is_moved: bool
) -> None:
    store = folder.open()
    ask.write(store, *chain("text", 16), item("next"))
    (first,) = [file for file in folder.files() if file.stat().st_size == 18 * PAGE]
    kept = names("text", *range(live))
    expire_all_but(folder, store, ask, *kept, "next")
    assert first.exists() is not is_moved
    assert ask.read(store, *kept, "next") == ["hit"] * (live + 1)
    assert ask.found(store, ("text", 15)) == ["miss"]
    again = folder.open()
    assert ask.read(again, *kept, "next") == ["hit"] * (live + 1)


def test_what_moves_on_one_machine_is_read_on_another(
    folder: Any, ask: Any, no_holes: None
) -> None:
    one, other = folder.open(), folder.open()
    ask.write(one, *chain("text", 16), item("next"))
    other.look(deadline_s=FOREVER)
    kept = names("text", 0, 1)
    assert ask.read(other, *kept) == ["hit"] * 2
    (first,) = [file for file in folder.files() if file.stat().st_size == 18 * PAGE]
    expire_all_but(folder, one, ask, *kept)
    assert not first.exists()
    assert ask.read(other, *kept) == ["hit"] * 2  # the file is still open
    other.look(deadline_s=FOREVER)
    assert ask.read(other, *kept) == ["hit"] * 2  # where it is now
    assert other.report().records >= 2


def test_what_a_machine_moves_counts_even_if_its_clock_is_behind(
    folder: Any, ask: Any, no_holes: None
) -> None:
    one, other = folder.open(), folder.open()
    ask.write(one, *chain("text", 16), item("next"))
    one.close()
    other.look(deadline_s=FOREVER)
    folder.now_s -= 3000
    behind = folder.open()
    with behind._opened.keeper.catalogue.lock:
        gone = [("blocks", key(name)) for name in names("text", *range(2, 16))]
        behind._opened.keeper.catalogue.shelf.remove(gone, "expired")
    behind.sweep(deadline_s=FOREVER)
    other.look(deadline_s=FOREVER)
    assert ask.found(other, *names("text", 0, 1, 2)) == ["hit", "hit", "miss"]
    assert ask.read(other, *names("text", 0, 1)) == ["hit"] * 2


@pytest.mark.parametrize("can_punch", [True, False])
def test_whoever_reads_what_another_machine_removed_misses(
    folder: Any, ask: Any, request: pytest.FixtureRequest, can_punch: bool
) -> None:
    if not can_punch:
        request.getfixturevalue("no_holes")
    one, other = folder.open(segment_bytes=1 << 20), folder.open()
    ask.write(one, *chain("text", 40))
    other.look(deadline_s=FOREVER)
    kept = names("text", *range(0, 40, 2))
    ask.read(other, *names("text", *range(40)))
    expire_all_but(folder, one, ask, *kept)
    read = ask.read(other, *names("text", *range(40)))
    assert read == (["hit", "miss"] * 20 if can_punch else ["hit"] * 40)
    assert "corrupt" not in other.report().outcomes
    if can_punch:
        assert ask.write(other, item(("text", 1))) == ["stored"]


def test_a_file_that_another_process_writes_is_left_alone_for_an_hour(
    folder: Any, ask: Any
) -> None:
    one, other = folder.open(), folder.open()
    ask.write(one, *chain("text", 3))
    other.look(deadline_s=FOREVER)
    folder.now_s += 4 * DAY_S
    other._opened.keeper._watch.is_steady()
    assert other.sweep(deadline_s=FOREVER) == 3
    assert len(folder.files()) == 1
    assert ask.read(one, ("text", 0)) == ["hit"]  # to its writer they are still there
    (segment,) = other._opened.keeper.catalogue.segments.values()
    segment.still_since_s = time.monotonic() - ABANDONED_S - 1
    other.sweep(deadline_s=FOREVER)
    assert folder.files() == []
    assert ABANDONED_S > 2 * IDLE_S


def test_a_writer_leaves_a_file_that_it_has_not_written_to_for_long(folder: Any, ask: Any) -> None:
    store = folder.open()
    ask.write(store, item("a"))
    folder.now_s += IDLE_S + 1
    ask.write(store, item("b"))
    assert len(folder.files()) == 2
    folder.now_s += IDLE_S
    store.sweep(deadline_s=FOREVER)
    assert [file.stat().st_size for file in folder.files()] == [3 * PAGE] * 2, "not sealed"


def test_what_is_dropped_leaves_no_byte_where_no_holes_can_be_made(
    folder: Any, ask: Any, no_holes: None
) -> None:
    ours, theirs = bytes([1]) * 32, bytes([2]) * 32
    one, other = folder.open(segment_bytes=1 << 20), folder.open(segment_bytes=1 << 20)
    for store, name in ((one, "a"), (other, "b")):
        for text in range(3):
            for space, space_name in ((ours, "ours"), (theirs, "theirs")):
                ask.write(store, item((name, text, space_name), namespace=space))
    assert one.drop(ours) == 6
    other.sweep(deadline_s=FOREVER)
    kept = b"".join(file.read_bytes() for file in folder.files())
    for name in "ab":
        for text in range(3):
            assert block((name, text, "ours")) not in kept
            assert block((name, text, "theirs")) in kept
    assert ask.read(one, *((name, 2, "theirs") for name in "ab")) == ["hit"] * 2


def test_a_crash_anywhere_in_tidying_up_loses_nothing(
    folder: Any, ask: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept = [*names("a", 0, 1), *names("b", *range(0, 16, 2))]
    crashes = 0
    for step in range(100):
        folder.path, folder.now_s = tmp_path / f"run{step}", 1e6
        store = folder.open(durable=True)
        ask.write(store, *chain("a", 16), *chain("b", 16), *chain("c", 17))
        folder.now_s += 2 * DAY_S
        ask.read(store, *kept)
        folder.now_s += 1.5 * DAY_S
        store._opened.keeper._watch.is_steady()
        crash = CrashAt(step)
        with monkeypatch.context() as patch:
            for owner, name in (
                (os, "pwritev"),
                (os, "unlink"),
                (os, "fsync"),
                (os, "preadv"),
                (medium.PosixMedium, "punch"),
                (medium.PosixMedium, "create"),
            ):
                patch.setattr(owner, name, crash.before(getattr(owner, name), name))
            try:
                store.sweep(deadline_s=FOREVER)
            except Crash:
                crashes += 1
        survivor = folder.open()
        assert ask.read(survivor, *kept) == ["hit"] * len(kept), f"crash {step}"
        survivor.sweep(deadline_s=FOREVER)
        assert ask.read(survivor, *kept) == ["hit"] * len(kept), f"crash {step}, swept"
        if crash.calls <= step:
            break
    assert crashes == step >= 8


def test_machines_that_tidy_up_at_once_lose_nothing(folder: Any, ask: Any, no_holes: None) -> None:
    first = folder.open()
    ask.write(first, *chain("a", 64), *chain("b", 64))
    kept = names("a", *range(0, 64, 6))
    folder.now_s += 2 * DAY_S
    ask.read(first, *kept)
    first.close()
    stores = [folder.open() for _ in range(3)]
    folder.now_s += 1.5 * DAY_S
    for store in stores:
        store._opened.keeper._watch.is_steady()
    with ThreadPoolExecutor(3) as pool:
        for _ in range(3):
            list(pool.map(lambda store: store.sweep(deadline_s=FOREVER), stores))
    for store in (*stores, folder.open()):
        store.look(deadline_s=FOREVER)
        assert ask.read(store, *kept) == ["hit"] * len(kept)
        assert ask.found(store, ("b", 0)) == ["miss"]


def test_blocks_of_groups_that_nobody_opens_expire_too(folder: Any, ask: Any) -> None:
    store = folder.open()
    store.store("state", [item("s", STATES)], deadline_s=FOREVER)
    ask.write(store, item("a"))
    store.close()
    store.open([BLOCKS])
    assert store.report().records == 2
    folder.now_s += 200
    assert store.sweep(deadline_s=FOREVER) == 1
    assert ask.read(store, "a") == ["hit"]
