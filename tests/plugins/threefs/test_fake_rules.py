"""Does the fake of USRBIO refuse what the library refuses?"""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path
from typing import Any

import pytest

PAGE = 4096


def test_only_registered_descriptors_of_the_mount_are_taken(side: Any, tmp_path: Path) -> None:
    ring = side.ring()
    with open(__file__, "rb") as elsewhere, side.path.open("rb") as here:
        assert side.number(side.fake.register_fd, elsewhere.fileno()) == errno.EBADF
        assert side.number(ring.prepare, side.page(0), True, here.fileno(), 0) == errno.EBADF
        side.fake.register_fd(here.fileno())
        assert side.number(side.fake.register_fd, here.fileno()) == errno.EINVAL
        ring.prepare(side.page(0), True, here.fileno(), 0)
        writing = side.ring(for_read=False)
        assert side.number(writing.prepare, side.page(0), False, here.fileno(), 0) == errno.EACCES
        side.fake.deregister_fd(here.fileno())
        assert side.number(ring.prepare, side.page(0), True, here.fileno(), 0) == errno.EBADF


def test_a_number_that_was_closed_too_early_means_the_old_file(side: Any) -> None:
    old = os.open(side.path, os.O_RDONLY)
    side.fake.register_fd(old)
    os.close(old)
    side.fake.deregister_fd(old)  # too late: it is no descriptor any more
    other = Path(side.fake.mount) / "other"
    other.write_bytes(b"z" * PAGE)
    new = os.open(other, os.O_RDONLY)
    assert new == old, "the number is not given again; the test needs one that is"
    assert side.number(side.fake.register_fd, new) == errno.EINVAL
    ring = side.ring()
    ring.prepare(side.page(0), True, new, 0)
    ring.wait(min_results=1)
    assert side.memory[0] == 1, "of the old file"
    os.close(new)


def test_a_ring_is_of_one_direction_and_takes_no_empty_memory(side: Any) -> None:
    ring = side.ring()
    assert side.number(ring.prepare, side.page(0), False, side.fd, 0) == errno.EINVAL
    assert side.number(ring.prepare, side.iov[5:5], True, side.fd, 0) == errno.EINVAL
    with pytest.raises(ValueError, match="step"):
        side.iov[::2]


def test_rings_that_cannot_be_made(side: Any) -> None:
    assert side.number(side.fake.ioring, "/nowhere", 4) == errno.ENOENT
    assert side.number(side.ring, 4, io_depth=5) == errno.EINVAL
    assert side.number(side.ring, 4, timeout=-1) == errno.EINVAL
    side.ring(4, io_depth=4)


def test_no_operation_crosses_a_border_of_its_memory(side: Any) -> None:
    ring = side.ring()
    iov = side.iovec(block_size=4 * PAGE)
    for first, expected in ((2, 2 * PAGE), (3, -errno.EINVAL), (4, 2 * PAGE)):
        ring.prepare(iov[first * PAGE : (first + 2) * PAGE], True, side.fd, 0)
        assert ring.wait(min_results=1)[0].result == expected


def test_memory_is_known_by_its_link(side: Any) -> None:
    ring = side.ring()
    ring.prepare(side.iovec(linked=False)[:PAGE], True, side.fd, 0)
    assert ring.wait(min_results=1)[0].result == -errno.EACCES
    with pytest.raises(ValueError, match="UUID"):
        side.fake.iovec(side.memory, "no id", side.fake.mount)


def test_whoever_forgets_userdata_is_told(side: Any) -> None:
    class Token:
        pass

    ring, kept = side.ring(), Token()
    ring.prepare(side.page(0), True, side.fd, 0, kept)
    assert ring.wait(min_results=1)[0].userdata is kept
    ring.prepare(side.page(0), True, side.fd, 0, Token())
    gc.collect()
    with pytest.raises(AssertionError, match="userdata"):
        ring.wait(min_results=1)


def test_a_length_that_lags_is_there_when_it_is_asked_for(side: Any) -> None:
    side.fake.files.length_lags = True
    ring, writing = side.ring(), side.ring(for_read=False)
    side.memory[:PAGE] = b"n" * PAGE
    writing.prepare(side.page(0), False, side.fd, 16 * PAGE)
    assert writing.wait(min_results=1)[0].result == PAGE
    assert side.path.stat().st_size == 16 * PAGE
    ring.prepare(side.page(1), True, side.fd, 16 * PAGE)
    ring.wait(min_results=1)
    assert side.memory[PAGE : 2 * PAGE] == b"n" * PAGE
    assert side.fake.force_fsync(side.fd) == 0
    assert side.path.stat().st_size == 17 * PAGE
    with open(__file__, "rb") as elsewhere:
        assert side.fake.force_fsync(elsewhere.fileno()) == -1


def test_paths_below_the_mount_are_on_it(side: Any, tmp_path: Path) -> None:
    assert side.fake.extract_mount_point(str(side.path)) == side.fake.mount
    assert side.fake.extract_mount_point("/") is None
    side.fake.hardlink(str(side.path), f"{side.fake.mount}/second")
    assert (tmp_path / "second").samefile(side.path)
