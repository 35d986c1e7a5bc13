"""Is what cannot be written told, and nothing left behind that was not stored?"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest
from deepinfer_core.testing.contracts.kv_store_suite import block, chain, item
from deepinfer_core.testing.store_groups import FOREVER

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
    ("name", "number", "durable", "is_first"),
    [
        ("pwritev", errno.ENOSPC, True, True),
        ("pwritev", errno.ENOSPC, True, False),
        ("pwritev", errno.EIO, False, True),
        ("pwritev", errno.EIO, False, False),
        ("fsync", errno.EIO, True, True),
        ("fsync", errno.EIO, True, False),
        ("open", errno.EROFS, True, True),
    ],
)
def test_what_cannot_be_written_is_unavailable_and_not_there(
    folder: Any,
    ask: Any,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    number: int,
    durable: bool,
    is_first: bool,
) -> None:
    store = folder.open(durable=durable)
    ask.write(store, *chain("before", 3))
    if is_first:
        store = folder.open(durable=durable)
    with monkeypatch.context() as patch:
        patch.setattr(os, name, failing(getattr(os, name), number, 99))
        statuses = ask.write(store, item(("before", 0)), *chain("text", 3))
        assert statuses == ["exists"] + ["unavailable"] * 3
        assert os.strerror(number) in store.report().problem
    assert ask.found(store, *NAMES[:3]) == ["miss"] * 3
    assert ask.read(store, ("before", 2)) == ["hit"]
    assert ask.write(store, *chain("text", 3)) == ["stored"] * 3
    assert ask.read(store, *NAMES[:3]) == ["hit"] * 3
    assert not store.report().problem
    assert store.report().records == 6


def test_a_write_that_stops_half_way_goes_on(
    folder: Any, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = folder.open()
    ask.write(store, item("before"))
    true_pwrite = os.pwrite
    monkeypatch.setattr(
        os, "pwritev", lambda fd, parts, at: true_pwrite(fd, b"".join(parts)[:5000], at)
    )
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: true_pwrite(fd, data[:777], at))
    assert ask.write(store, *chain("text", 20)) == ["stored"] * 20
    monkeypatch.undo()
    assert ask.read(store, *NAMES) == ["hit"] * 20


def test_what_follows_a_failed_batch_is_found_by_others(
    folder: Any, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = folder.open(durable=True), folder.open()
    ask.write(one, item("before"))
    true_pwrite = os.pwrite

    def first_one_only(fd: int, parts: Any, at: int) -> int:
        true_pwrite(fd, b"".join(parts)[:PAGE], at)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", first_one_only)
        assert ask.write(one, *chain("text", 3)) == ["unavailable"] * 3
    other.look(deadline_s=FOREVER)
    assert ask.read(other, *NAMES[:2]) == ["hit", "miss"]  # as after a crash
    assert ask.write(one, *chain("behind", 3)) == ["stored"] * 3
    other.look(deadline_s=FOREVER)
    assert ask.read(other, *(("behind", depth) for depth in range(3))) == ["hit"] * 3


def test_no_descriptor_is_left_behind(folder: Any, ask: Any) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = descriptors()
    store = folder.open(segment_bytes=2 * PAGE, capacity_bytes=1 << 24)
    ask.write(store, *chain("text", 300))
    assert ask.read(store, *(("text", depth) for depth in range(300))) == ["hit"] * 300
    assert descriptors() < before + 150
    store.sweep(deadline_s=FOREVER)
    store.close()
    assert descriptors() == before


def test_only_the_user_may_read_what_is_kept(folder: Any, ask: Any) -> None:
    store = folder.open()
    ask.write(store, item("a"))
    store.drop(bytes([1]) * 32)
    paths = [folder.path, *folder.path.rglob("*")]
    assert len(paths) >= 6
    assert all(path.stat().st_mode & 0o077 == 0 for path in paths)
    assert block("a") in folder.files()[0].read_bytes()
