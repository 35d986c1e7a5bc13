"""What does a look at a folder see, and what does it leave for the next one?"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.testing.contracts.kv_store_suite import chain, item
from deepinfer_core.testing.store_groups import FOREVER
from deepinfer_threefs import keeping, scanner


def until(condition: Any, *, limit_s: float = 20.0) -> None:
    """Wait for another thread or process."""
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, "it did not come about"
        time.sleep(0.01)


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


def test_a_record_that_is_not_there_yet_is_found_later(folder: Any, ask: Any) -> None:
    one, other = folder.open(), folder.open()
    ask.write(one, *chain("text", 3))
    (path,) = folder.files()
    whole = path.read_bytes()
    for seen in (whole[: 3 * 4096] + bytes(4096), whole[: 3 * 4096 + 100] + bytes(3996)):
        path.write_bytes(seen)  # the length is there before the bytes are
        other.look(deadline_s=FOREVER)
        assert ask.found(other, *(("text", depth) for depth in range(3))) == ["hit", "hit", "miss"]
    path.write_bytes(whole)
    other.look(deadline_s=FOREVER)
    assert ask.read(other, *(("text", depth) for depth in range(3))) == ["hit"] * 3


def test_nothing_expires_before_all_uses_are_known(
    folder: Any, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = folder.open(segment_bytes=1 << 20)
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
        assert 10 < late.report().records < 20
    assert late.sweep(deadline_s=FOREVER) == 0
    assert late.report().records == 20


def test_a_file_that_cannot_be_read_is_counted_and_read_later(
    folder: Any, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = folder.open(), folder.open()
    ask.write(one, *chain("text", 20))
    true_pread = os.pread
    first = str(folder.files()[0])

    def fails(fd: int, length: int, at: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{fd}") == first:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return true_pread(fd, length, at)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", fails)
        other.look(deadline_s=FOREVER)
        report = other.report()
        assert (report.problem, report.work) == ("", {"files": 1, "unreadable_files": 1})
        assert ask.found(other, ("text", 0), ("text", 19)) == ["miss", "hit"]
    other.look(deadline_s=FOREVER)
    assert ask.found(other, ("text", 0)) == ["hit"]
    assert other.report().work == {"files": 2, "unreadable_files": 0}


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
