"""Does the fake of USRBIO do what the library's documentation and sources say?"""

from __future__ import annotations

import errno
from datetime import timedelta
from typing import Any

import pytest
from deepinfer_threefs.testing.usrbio import FORBID_HOLES

NOW = timedelta(0)
PAGE = 4096


def test_reads_end_with_bytes_results_and_what_they_were_prepared_with(side: Any) -> None:
    ring = side.ring()
    side.read(ring, 3, 5)
    parts = ring.submit().wait(min_results=2)
    assert {part.userdata for part in parts} == {3, 5}
    assert {part.result for part in parts} == {PAGE}
    assert side.memory[3 * PAGE] == 4
    assert side.memory[5 * PAGE] == 6
    assert parts[0].base_off in (3 * PAGE, 5 * PAGE)


def test_an_operation_may_begin_before_it_is_submitted(side: Any) -> None:
    ring = side.ring(for_read=False)
    side.memory[:PAGE] = b"a" * PAGE
    ring.prepare(side.page(0), False, side.fd, 0)
    side.memory[:PAGE] = b"b" * PAGE  # too late
    ring.submit().wait(min_results=1)
    assert side.path.read_bytes()[:PAGE] == b"a" * PAGE


def test_where_it_is_not_eager_it_begins_with_the_next_look(side: Any) -> None:
    side.fake.habits.is_eager = False
    ring = side.ring(for_read=False)
    side.memory[:PAGE] = b"a" * PAGE
    ring.prepare(side.page(0), False, side.fd, 0)
    side.memory[:PAGE] = b"b" * PAGE
    ring.wait(min_results=1)  # nobody submitted
    assert side.path.read_bytes()[:PAGE] == b"b" * PAGE


def test_without_a_depth_whatever_is_there_is_begun(side: Any) -> None:
    ring = side.ring(io_depth=0)
    side.read(ring, 0)
    assert side.ended(ring) == [0]
    side.read(ring, 1, 2, 3)
    assert sorted(side.ended(ring)) == [1, 2, 3]


@pytest.mark.parametrize("prepared", [0, 1, 3, 4, 5, 7, 8, 9])
def test_with_a_depth_exactly_so_many_are_begun_at_once(side: Any, prepared: int) -> None:
    ring = side.ring(io_depth=4)
    side.read(ring, *range(prepared))
    ring.submit()
    assert sorted(side.ended(ring)) == list(range(prepared // 4 * 4))
    with_rest = side.ring(io_depth=4)
    side.read(with_rest, 0)
    assert with_rest.wait(min_results=1, timeout=timedelta(milliseconds=5)) == []


def test_below_zero_at_most_so_many_and_fewer_after_a_while(side: Any) -> None:
    side.fake.habits.is_eager = False
    ring = side.ring(io_depth=-4, timeout=40)
    side.read(ring, *range(6))
    assert sorted(side.ended(ring)) == [0, 1, 2, 3]
    assert side.ended(ring) == []
    assert sorted(part.userdata for part in ring.wait(min_results=2)) == [4, 5]  # type: ignore[type-var]
    hasty = side.ring(io_depth=-4)
    side.read(hasty, 0)
    assert side.ended(hasty) == [0]


def test_operations_end_out_of_order_and_the_same_way_again(side: Any) -> None:
    orders = []
    for _ in range(2):
        side.fake.rings = 0
        ring = side.ring()
        side.read(ring, *range(16))
        orders.append(side.ended(ring))
    assert orders[0] == orders[1] != list(range(16))
    assert sorted(orders[0]) == list(range(16))


@pytest.mark.parametrize("entries", [1, 2, 5])
def test_a_ring_has_room_until_its_results_were_waited_for(side: Any, entries: int) -> None:
    ring = side.ring(entries)
    side.read(ring, *range(entries))
    assert side.number(ring.prepare, side.page(9), True, side.fd, 0) == errno.EAGAIN
    assert len(side.ended(ring, 1)) == 1
    side.read(ring, 9)
    assert side.number(ring.prepare, side.page(9), True, side.fd, 0) == errno.EAGAIN


def test_a_wait_gives_at_most_what_is_asked_for_and_ends_in_time(side: Any) -> None:
    ring = side.ring()
    side.read(ring, 0, 1, 2)
    assert len(ring.wait(max_results=2)) == 2
    assert len(ring.wait(max_results=2, min_results=2, timeout=timedelta(milliseconds=5))) == 1
    assert ring.wait(min_results=1, timeout=timedelta(milliseconds=5)) == []
    assert ring.wait() == []


def test_the_end_of_a_file_is_a_short_read(side: Any) -> None:
    ring = side.ring()
    ring.prepare(side.iov[: 2 * PAGE], True, side.fd, 15 * PAGE)
    ring.prepare(side.page(2), True, side.fd, 16 * PAGE)
    assert sorted(part.result for part in ring.wait(min_results=2)) == [0, PAGE]


@pytest.mark.parametrize("forbids", [True, False])
def test_a_hole_is_zeros_or_an_error_and_at_the_end_a_short_read(side: Any, forbids: bool) -> None:
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


def test_holes_are_of_whole_chunks(side: Any) -> None:
    side.fake.habits.chunk_bytes = 4 * PAGE
    assert side.number(side.fake.punch_hole, side.fd, [PAGE], [4 * PAGE]) == errno.EINVAL
    side.fake.punch_hole(side.fd, [4 * PAGE], [8 * PAGE])
    assert not any(side.path.read_bytes()[4 * PAGE : 8 * PAGE])
    with pytest.raises(RuntimeError):
        side.fake.punch_hole(side.fd, [0] * 1001, [4 * PAGE] * 1001)


def test_a_version_that_is_not_committed_fails_and_is_read_later(side: Any) -> None:
    side.fake.habits.pending = 1
    ring = side.ring()
    side.read(ring, 0)
    assert ring.wait(min_results=1)[0].result == -errno.EIO
    side.read(ring, 0)
    assert ring.wait(min_results=1)[0].result == PAGE


def test_lost_operations_errors_and_short_ones_come_as_asked(side: Any) -> None:
    habits, ring = side.fake.habits, side.ring()
    habits.errors.extend([errno.ENOSPC])
    side.read(ring, 0)
    assert ring.wait(min_results=1)[0].result == -errno.ENOSPC
    habits.shortened = 1
    side.read(ring, 1)
    assert ring.wait(min_results=1)[0].result == PAGE // 2
    habits.lost = 1
    side.read(ring, 2, 3)
    assert side.ended(ring) == [3]
    assert side.ended(ring) == []
