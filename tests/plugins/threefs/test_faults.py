"""Is anything wrong ever handed out, or any call broken off, when files or the system fail?"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.errors import ConfigError
from deepinfer_core.testing.contracts.kv_store_suite import chain, item, key
from deepinfer_core.testing.store_groups import BLOCKS, FOREVER, STATES
from deepinfer_threefs.medium import PosixMedium

PAGE = 4096
NAMES = [("text", depth) for depth in range(20)]


def failing(call: Callable[..., Any], number: int, times: int) -> Callable[..., Any]:
    """The same call, which fails so many times before it works."""
    left = [times]

    def fails(*args: Any, **options: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise OSError(number, os.strerror(number))
        return call(*args, **options)

    return fails


@pytest.mark.parametrize(
    "length", [0, 1, 4095, 4096, 4097, 3 * PAGE - 17, 3 * PAGE, 3 * PAGE + 200]
)
def test_a_file_that_is_cut_off_loses_its_end_only(folder: Any, ask: Any, length: int) -> None:
    store = folder.open(segment_bytes=1 << 20)
    ask.write(store, *chain("text", 20))
    os.truncate(folder.files()[0], length)
    whole = max(0, length - PAGE) // PAGE
    read = ask.read(store, *NAMES)
    assert read[:whole] == ["hit"] * whole
    assert set(read[whole:]) <= {"miss", "corrupt"}
    assert ask.write(store, *chain("text", 20)) == ["exists"] * whole + ["stored"] * (20 - whole)
    assert ask.read(store, *NAMES) == ["hit"] * 20


@pytest.mark.parametrize("length", [0, 100, PAGE, PAGE + 100, 2 * PAGE - 1, 2 * PAGE, 5 * PAGE + 7])
def test_a_torn_end_is_passed_over_when_the_store_is_opened(
    folder: Any, ask: Any, length: int
) -> None:
    ask.write(folder.open(segment_bytes=1 << 20), *chain("text", 20))
    os.truncate(folder.files()[0], length)
    store = folder.open()
    whole = max(0, length - PAGE) // PAGE
    assert ask.found(store, *NAMES) == ["hit"] * whole + ["miss"] * (20 - whole)
    assert ask.write(store, *chain("text", 20)) == ["exists"] * whole + ["stored"] * (20 - whole)
    assert ask.read(store, *NAMES) == ["hit"] * 20


def test_bits_that_flip_anywhere_never_come_out(folder: Any, ask: Any) -> None:
    store = folder.open()
    ask.write(store, *chain("text", 20))
    folder.now_s += 86400
    ask.read(store, *NAMES)
    store.close()
    files = [*folder.files(), *folder.path.glob(".journals/*")]
    whole = {file: file.read_bytes() for file in files}
    assert len(whole) == 3
    rng = random.Random("test_bits_that_flip_anywhere_never_come_out")
    statuses: set[str] = set()
    for _ in range(150):
        file = rng.choice(files)
        data = bytearray(whole[file])
        for _ in range(rng.choice([1, 1, 2, 40])):
            at = rng.choice([rng.randrange(len(data)), rng.randrange(min(len(data), 4400))])
            data[at] ^= 1 << rng.randrange(8)
        file.write_bytes(data)
        opened = folder.open()
        statuses.update(ask.read(opened, *NAMES))  # compares what comes out
        opened.sweep(deadline_s=FOREVER)
        statuses.update(ask.read(opened, *NAMES))
        opened.close()
        for left in (*folder.files(), *folder.path.glob(".journals/*")):
            left.unlink()
        for one, content in whole.items():
            one.write_bytes(content)
    assert statuses == {"hit", "miss", "corrupt"}


def test_files_that_vanish_are_misses_and_their_blocks_can_be_stored_again(
    folder: Any, ask: Any
) -> None:
    store = folder.open()
    ask.write(store, *chain("text", 20))
    ask.read(store, ("text", 0))
    folder.files()[0].rename(folder.path / "elsewhere")  # the open file is still there: a hit
    assert ask.read(store, ("text", 19)) == ["hit"]
    store.look(deadline_s=FOREVER)
    assert ask.found(store, *NAMES) == ["miss"] * 16 + ["hit"] * 4
    assert ask.write(store, *chain("text", 20)) == ["stored"] * 16 + ["exists"] * 4
    for file in folder.files():
        file.unlink()
    fresh = folder.open()
    ask.write(fresh, *chain("text", 20))
    for file in folder.files():
        file.unlink()
    assert ask.read(fresh, *NAMES) == ["miss"] * 20
    assert fresh.report().records == 0


def test_a_folder_that_vanishes_is_told_and_costs_no_call(folder: Any, ask: Any) -> None:
    store = folder.open()
    ask.write(store, *chain("text", 20))
    store.close()
    store.open([BLOCKS, STATES])
    shutil.rmtree(folder.path)
    store.look(deadline_s=FOREVER)
    assert "cannot be read" in store.report().problem
    assert ask.read(store, *NAMES) == ["miss"] * 20
    assert store.sweep(deadline_s=FOREVER) == 0
    assert ask.write(store, item("a")) == ["stored"]  # it makes its folders anew
    store.look(deadline_s=FOREVER)
    assert not store.report().problem


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOTCONN, errno.ETIMEDOUT, errno.EACCES])
def test_what_cannot_be_read_now_is_unavailable_and_stays(
    folder: Any, ask: Any, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    store = folder.open()
    ask.write(store, *chain("text", 3))
    with monkeypatch.context() as patch:
        patch.setattr(os, "preadv", failing(os.preadv, number, 2))
        assert ask.read(store, *NAMES[:3]) == ["unavailable", "unavailable", "hit"]
    assert ask.read(store, *NAMES[:3]) == ["hit"] * 3
    assert store.report().removed == {}


@pytest.mark.parametrize("others_can_be_read", [True, False])
def test_a_file_that_cannot_be_read_for_long_is_given_up_if_others_can(
    folder: Any, ask: Any, monkeypatch: pytest.MonkeyPatch, others_can_be_read: bool
) -> None:
    store = folder.open()
    ask.write(store, *chain("text", 20))  # in two files
    first = folder.files()[0]
    true_preadv = os.preadv

    def fails(fd: int, into: Any, at: int) -> int:
        if not others_can_be_read or os.readlink(f"/proc/self/fd/{fd}") == str(first):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return true_preadv(fd, into, at)

    with monkeypatch.context() as patch:
        patch.setattr(os, "preadv", fails)
        assert ask.read(store, NAMES[0]) == ["unavailable"]
        ask.read(store, NAMES[19])
        for segment in store._opened.keeper.catalogue.segments.values():
            if segment.failing_since_s is not None:
                segment.failing_since_s -= 61.0
        assert ask.read(store, NAMES[1]) == ["unavailable"]
    given_up = "miss" if others_can_be_read else "hit"
    assert ask.found(store, *NAMES) == [given_up] * 16 + ["hit"] * 4
    store.sweep(deadline_s=FOREVER)
    assert first.exists()
    again = "stored" if others_can_be_read else "exists"
    assert ask.write(store, item(NAMES[0])) == [again]
    assert ask.read(store, NAMES[0]) == ["hit"]


@pytest.mark.parametrize("number", [errno.ESTALE, errno.ENOENT])
def test_a_stale_handle_is_opened_anew(
    folder: Any, ask: Any, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    store = folder.open()
    ask.write(store, *chain("text", 3))
    ask.read(store, *NAMES[:3])
    opened = []
    true_open = os.open
    monkeypatch.setattr(os, "open", lambda *args: opened.append(args) or true_open(*args))
    monkeypatch.setattr(os, "preadv", failing(os.preadv, number, 1))
    assert ask.read(store, *NAMES[:3]) == ["hit"] * 3
    assert len(opened) == 1
    monkeypatch.setattr(os, "preadv", failing(os.preadv, number, 99))
    assert ask.read(store, NAMES[0]) == ["miss"]


def test_reads_that_stop_half_way_go_on(
    folder: Any, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = folder.open()
    ask.write(store, *chain("text", 20))
    true_preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, into, at: true_preadv(fd, [into[0][:999]], at))
    assert ask.read(store, *NAMES) == ["hit"] * 20


def test_another_ones_place_is_found_out(folder: Any, ask: Any) -> None:
    store = folder.open()
    ask.write(store, *chain("text", 3))
    path = folder.files()[0]
    data = bytearray(path.read_bytes())
    data[PAGE : 2 * PAGE], data[2 * PAGE : 3 * PAGE] = (
        data[2 * PAGE : 3 * PAGE],
        data[PAGE : 2 * PAGE],
    )
    path.write_bytes(data)
    assert ask.read(store, *NAMES[:3]) == ["corrupt", "corrupt", "hit"]
    again = folder.open()
    assert ask.read(again, *NAMES[:3]) == ["hit"] * 3  # where they say that they are


class Meanwhile(PosixMedium):
    """Something happens while blocks are read for the second time."""

    def __init__(self) -> None:
        super().__init__()
        self.reads, self.happens = 0, lambda: None

    def read(self, spans: Any, deadline_s: float) -> Any:
        self.reads += 1
        for moved in super().read(spans, deadline_s):
            if self.reads == 2:
                self.happens()
            yield moved


def test_a_block_that_is_stored_again_while_its_damage_is_seen_stays(folder: Any, ask: Any) -> None:
    medium = Meanwhile()
    store = folder.open(medium)
    ask.write(store, *chain("text", 3))
    with folder.files()[0].open("r+b") as file:
        file.seek(PAGE + 1000)
        file.write(b"damage")
    catalogue = store._opened.keeper.catalogue

    def stored_again() -> None:
        catalogue.shelf.remove([("blocks", key(NAMES[0]))], "damaged")
        assert ask.write(store, *chain("text", 1)) == ["stored"]

    medium.happens = stored_again
    assert ask.read(store, NAMES[0]) == ["miss"]
    assert ask.read(store, NAMES[0]) == ["hit"]


def test_a_folder_that_cannot_be_is_refused(folder: Any, tmp_path: Path) -> None:
    folder.path.write_text("a file")
    with pytest.raises(ConfigError, match=r"cannot be opened: .* is a file, not a folder"):
        folder.open()


def test_a_close_that_fails_costs_nothing(
    folder: Any, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = folder.open()
    ask.write(store, *chain("text", 3))
    ask.read(store, *NAMES[:3])
    true_close = os.close

    def fails(fd: int) -> None:
        true_close(fd)
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

    with monkeypatch.context() as patch:
        patch.setattr(os, "close", fails)
        patch.setattr(os, "preadv", failing(os.preadv, errno.ESTALE, 1))
        assert ask.read(store, *NAMES[:3]) == ["hit"] * 3
        store.close()
