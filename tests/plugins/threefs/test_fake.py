"""Does the fake of USRBIO do what the library's documentation and sources say?"""

from __future__ import annotations

import errno
import gc
import mmap
import os
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deepinfer_threefs.testing.usrbio import FORBID_HOLES, FakeIoring, FakeUsrbio

NOW = timedelta(0)
PAGE = 4096


class Side:
    """What a program has: memory, a file of sixteen numbered pages, and a ring."""

    def __init__(self, mount: Path) -> None:
        self.fake = FakeUsrbio(mount)
        self.memory = memoryview(mmap.mmap(-1, 16 * PAGE))
        self.iov = self.iovec()
        self.path = mount / "file"
        self.path.write_bytes(b"".join(bytes([page + 1]) * PAGE for page in range(16)))
        self.fd = os.open(self.path, os.O_RDWR)
        self.fake.register_fd(self.fd)

    def iovec(self, block_size: int = 0, *, linked: bool = True) -> Any:
        name = str(uuid.uuid4())
        suffix = f".b{block_size}" if block_size else ""
        if linked:
            os.symlink("/dev/shm/any", f"{self.fake.mount}/3fs-virt/iovs/{name}{suffix}")
        return self.fake.iovec(self.memory, name, self.fake.mount, block_size)

    def ring(self, entries: int = 16, **options: Any) -> FakeIoring:
        return self.fake.ioring(self.fake.mount, entries, **options)

    def page(self, number: int) -> Any:
        return self.iov[number * PAGE : (number + 1) * PAGE]

    def read(self, ring: FakeIoring, *pages: int) -> None:
        for page in pages:
            ring.prepare(self.page(page), True, self.fd, page * PAGE, page)


@pytest.fixture
def side(tmp_path: Path) -> Iterator[Side]:
    made = Side(tmp_path)
    yield made
    os.close(made.fd)
    made.fake.files.close()


def ended(ring: FakeIoring, most: int = 16) -> list[int]:
    """Numbers of the operations that have ended."""
    parts = ring.wait(max_results=most, timeout=NOW)
    return [part.userdata for part in parts]  # type: ignore[misc]


def number(call: Any, *args: Any, **options: Any) -> int:
    """The error that a call raises."""
    try:
        call(*args, **options)
    except OSError as error:
        return error.errno or 0
    pytest.fail("it raised nothing")


def test_reads_end_with_bytes_results_and_what_they_were_prepared_with(side: Side) -> None:
    ring = side.ring()
    side.read(ring, 3, 5)
    parts = ring.submit().wait(min_results=2)
    assert {part.userdata for part in parts} == {3, 5}
    assert {part.result for part in parts} == {PAGE}
    assert side.memory[3 * PAGE] == 4
    assert side.memory[5 * PAGE] == 6
    assert parts[0].base_off in (3 * PAGE, 5 * PAGE)


def test_an_operation_may_begin_before_it_is_submitted(side: Side) -> None:
    ring = side.ring(for_read=False)
    side.memory[:PAGE] = b"a" * PAGE
    ring.prepare(side.page(0), False, side.fd, 0)
    side.memory[:PAGE] = b"b" * PAGE  # too late
    ring.submit().wait(min_results=1)
    assert side.path.read_bytes()[:PAGE] == b"a" * PAGE


def test_where_it_is_not_eager_it_begins_with_the_next_look(side: Side) -> None:
    side.fake.habits.is_eager = False
    ring = side.ring(for_read=False)
    side.memory[:PAGE] = b"a" * PAGE
    ring.prepare(side.page(0), False, side.fd, 0)
    side.memory[:PAGE] = b"b" * PAGE
    ring.wait(min_results=1)  # nobody submitted
    assert side.path.read_bytes()[:PAGE] == b"b" * PAGE


def test_without_a_depth_whatever_is_there_is_begun(side: Side) -> None:
    ring = side.ring(io_depth=0)
    side.read(ring, 0)
    assert ended(ring) == [0]
    side.read(ring, 1, 2, 3)
    assert sorted(ended(ring)) == [1, 2, 3]


@pytest.mark.parametrize("prepared", [0, 1, 3, 4, 5, 7, 8, 9])
def test_with_a_depth_exactly_so_many_are_begun_at_once(side: Side, prepared: int) -> None:
    ring = side.ring(io_depth=4)
    side.read(ring, *range(prepared))
    ring.submit()
    assert sorted(ended(ring)) == list(range(prepared // 4 * 4))
    with_rest = side.ring(io_depth=4)
    side.read(with_rest, 0)
    assert with_rest.wait(min_results=1, timeout=timedelta(milliseconds=5)) == []


def test_below_zero_at_most_so_many_and_fewer_after_a_while(side: Side) -> None:
    side.fake.habits.is_eager = False
    ring = side.ring(io_depth=-4, timeout=40)
    side.read(ring, *range(6))
    assert sorted(ended(ring)) == [0, 1, 2, 3]
    assert ended(ring) == []
    assert sorted(part.userdata for part in ring.wait(min_results=2)) == [4, 5]  # type: ignore[type-var]
    hasty = side.ring(io_depth=-4)
    side.read(hasty, 0)
    assert ended(hasty) == [0]


def test_operations_end_out_of_order_and_the_same_way_again(side: Side) -> None:
    orders = []
    for _ in range(2):
        side.fake.rings = 0
        ring = side.ring()
        side.read(ring, *range(16))
        orders.append(ended(ring))
    assert orders[0] == orders[1] != list(range(16))
    assert sorted(orders[0]) == list(range(16))


@pytest.mark.parametrize("entries", [1, 2, 5])
def test_a_ring_has_room_until_its_results_were_waited_for(side: Side, entries: int) -> None:
    ring = side.ring(entries)
    side.read(ring, *range(entries))
    assert number(ring.prepare, side.page(9), True, side.fd, 0) == errno.EAGAIN
    assert len(ended(ring, 1)) == 1
    side.read(ring, 9)
    assert number(ring.prepare, side.page(9), True, side.fd, 0) == errno.EAGAIN


def test_a_wait_gives_at_most_what_is_asked_for_and_ends_in_time(side: Side) -> None:
    ring = side.ring()
    side.read(ring, 0, 1, 2)
    assert len(ring.wait(max_results=2)) == 2
    assert len(ring.wait(max_results=2, min_results=2, timeout=timedelta(milliseconds=5))) == 1
    assert ring.wait(min_results=1, timeout=timedelta(milliseconds=5)) == []
    assert ring.wait() == []


def test_the_end_of_a_file_is_a_short_read(side: Side) -> None:
    ring = side.ring()
    ring.prepare(side.iov[: 2 * PAGE], True, side.fd, 15 * PAGE)
    ring.prepare(side.page(2), True, side.fd, 16 * PAGE)
    assert sorted(part.result for part in ring.wait(min_results=2)) == [0, PAGE]


@pytest.mark.parametrize("forbids", [True, False])
def test_a_hole_is_zeros_or_an_error_and_at_the_end_a_short_read(side: Side, forbids: bool) -> None:
    side.fake.punch_hole(side.fd, [2 * PAGE], [3 * PAGE])
    ring = side.ring(flags=FORBID_HOLES if forbids else 0)

    def read(first: int, pages: int) -> int:
        side.memory[:] = b"x" * len(side.memory)
        ring.prepare(side.iov[: pages * PAGE], True, side.fd, first * PAGE)
        return ring.wait(min_results=1)[0].result

    assert read(1, 1) == PAGE
    assert read(1, 2) == PAGE
    assert read(2, 1) == 0
    assert read(1, 3) == (-errno.ENODATA if forbids else 3 * PAGE)
    if not forbids:
        assert side.memory[PAGE] == 0
        assert side.memory[2 * PAGE] == 4


def test_holes_are_of_whole_chunks(side: Side) -> None:
    side.fake.habits.chunk_bytes = 4 * PAGE
    assert number(side.fake.punch_hole, side.fd, [PAGE], [4 * PAGE]) == errno.EINVAL
    side.fake.punch_hole(side.fd, [4 * PAGE], [8 * PAGE])
    assert not any(side.path.read_bytes()[4 * PAGE : 8 * PAGE])
    with pytest.raises(RuntimeError):
        side.fake.punch_hole(side.fd, [0] * 1001, [4 * PAGE] * 1001)


def test_a_version_that_is_not_committed_fails_and_is_read_later(side: Side) -> None:
    side.fake.habits.pending = 1
    ring = side.ring()
    side.read(ring, 0)
    assert ring.wait(min_results=1)[0].result == -errno.EIO
    side.read(ring, 0)
    assert ring.wait(min_results=1)[0].result == PAGE


def test_only_registered_descriptors_of_the_mount_are_taken(side: Side, tmp_path: Path) -> None:
    ring = side.ring()
    with open(__file__, "rb") as elsewhere, side.path.open("rb") as here:
        assert number(side.fake.register_fd, elsewhere.fileno()) == errno.EBADF
        assert number(ring.prepare, side.page(0), True, here.fileno(), 0) == errno.EBADF
        side.fake.register_fd(here.fileno())
        assert number(side.fake.register_fd, here.fileno()) == errno.EINVAL
        ring.prepare(side.page(0), True, here.fileno(), 0)
        writing = side.ring(for_read=False)
        assert number(writing.prepare, side.page(0), False, here.fileno(), 0) == errno.EACCES
        side.fake.deregister_fd(here.fileno())
        assert number(ring.prepare, side.page(0), True, here.fileno(), 0) == errno.EBADF


def test_a_number_that_was_closed_too_early_means_the_old_file(side: Side) -> None:
    old = os.open(side.path, os.O_RDONLY)
    side.fake.register_fd(old)
    os.close(old)
    side.fake.deregister_fd(old)  # too late: it is no descriptor any more
    other = Path(side.fake.mount) / "other"
    other.write_bytes(b"z" * PAGE)
    new = os.open(other, os.O_RDONLY)
    assert new == old, "the number is not given again; the test needs one that is"
    assert number(side.fake.register_fd, new) == errno.EINVAL
    ring = side.ring()
    ring.prepare(side.page(0), True, new, 0)
    ring.wait(min_results=1)
    assert side.memory[0] == 1, "of the old file"
    os.close(new)


def test_a_ring_is_of_one_direction_and_takes_no_empty_memory(side: Side) -> None:
    ring = side.ring()
    assert number(ring.prepare, side.page(0), False, side.fd, 0) == errno.EINVAL
    assert number(ring.prepare, side.iov[5:5], True, side.fd, 0) == errno.EINVAL
    with pytest.raises(ValueError, match="step"):
        side.iov[::2]


def test_rings_that_cannot_be_made(side: Side) -> None:
    assert number(side.fake.ioring, "/nowhere", 4) == errno.ENOENT
    assert number(side.ring, 4, io_depth=5) == errno.EINVAL
    assert number(side.ring, 4, timeout=-1) == errno.EINVAL
    side.ring(4, io_depth=4)


def test_no_operation_crosses_a_border_of_its_memory(side: Side) -> None:
    ring = side.ring()
    iov = side.iovec(block_size=4 * PAGE)
    for first, expected in ((2, 2 * PAGE), (3, -errno.EINVAL), (4, 2 * PAGE)):
        ring.prepare(iov[first * PAGE : (first + 2) * PAGE], True, side.fd, 0)
        assert ring.wait(min_results=1)[0].result == expected


def test_memory_is_known_by_its_link(side: Side) -> None:
    ring = side.ring()
    ring.prepare(side.iovec(linked=False)[:PAGE], True, side.fd, 0)
    assert ring.wait(min_results=1)[0].result == -errno.EACCES
    with pytest.raises(ValueError, match="UUID"):
        side.fake.iovec(side.memory, "no id", side.fake.mount)


def test_whoever_forgets_userdata_is_told(side: Side) -> None:
    class Token:
        pass

    ring, kept = side.ring(), Token()
    ring.prepare(side.page(0), True, side.fd, 0, kept)
    assert ring.wait(min_results=1)[0].userdata is kept
    ring.prepare(side.page(0), True, side.fd, 0, Token())
    gc.collect()
    with pytest.raises(AssertionError, match="userdata"):
        ring.wait(min_results=1)


def test_a_length_that_lags_is_there_when_it_is_asked_for(side: Side) -> None:
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


def test_lost_operations_errors_and_short_ones_come_as_asked(side: Side) -> None:
    habits, ring = side.fake.habits, side.ring()
    habits.errors.extend([errno.ENOSPC])
    side.read(ring, 0)
    assert ring.wait(min_results=1)[0].result == -errno.ENOSPC
    habits.shortened = 1
    side.read(ring, 1)
    assert ring.wait(min_results=1)[0].result == PAGE // 2
    habits.lost = 1
    side.read(ring, 2, 3)
    assert ended(ring) == [3]
    assert ended(ring) == []


def test_paths_below_the_mount_are_on_it(side: Side, tmp_path: Path) -> None:
    assert side.fake.extract_mount_point(str(side.path)) == side.fake.mount
    assert side.fake.extract_mount_point("/") is None
    side.fake.hardlink(str(side.path), f"{side.fake.mount}/second")
    assert (tmp_path / "second").samefile(side.path)
