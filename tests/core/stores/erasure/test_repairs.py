"""Which block is made whole first, and when may that be?"""

import threading

import pytest
from deepinfer_core.stores.erasure import budget, repairs
from deepinfer_core.stores.erasure.budget import Budget, Traffic
from deepinfer_core.stores.erasure.repairs import Haste, RepairQueue


def names(queue: RepairQueue, most: int = 9) -> list[bytes]:
    return [key for _, key, _ in queue.take(most)]


def test_those_in_danger_go_first_then_those_in_use_then_what_a_scrub_saw() -> None:
    """Of those in use the last one first."""
    queue = RepairQueue()
    queue.add("blocks", b"seen", Haste.SEEN)
    queue.add("blocks", b"used before", Haste.USED)
    queue.add("blocks", b"danger", Haste.IN_DANGER)
    queue.add("blocks", b"used", Haste.USED)
    queue.add("blocks", b"seen later", Haste.SEEN)
    assert len(queue) == 5
    assert names(queue, 2) == [b"danger", b"used"]
    assert names(queue) == [b"used before", b"seen", b"seen later"]
    assert names(queue) == []


def test_a_use_moves_a_block_that_waits_forward() -> None:
    queue = RepairQueue()
    for name in (b"1", b"2", b"3"):
        queue.add("blocks", name, Haste.SEEN)
    queue.add("blocks", b"4", Haste.IN_DANGER)
    queue.note_uses("blocks", [b"2", b"4", b"5"])
    queue.note_uses("state", [b"3"])
    assert [queue.is_used("blocks", bytes(name)) for name in (b"1", b"2", b"4", b"5")] == [
        False,
        True,
        True,
        False,
    ]
    assert names(queue) == [b"4", b"2", b"1", b"3"]


def test_what_becomes_more_urgent_stays_so() -> None:
    queue = RepairQueue()
    queue.add("blocks", b"1", Haste.IN_DANGER)
    queue.add("blocks", b"2", Haste.SEEN)
    queue.add("blocks", b"2", Haste.IN_DANGER)
    queue.add("blocks", b"1", Haste.SEEN, visits=1)
    queue.add("blocks", b"3", Haste.USED)
    assert queue.take(9) == [("blocks", b"1", 1), ("blocks", b"2", 0), ("blocks", b"3", 0)]


def test_groups_are_taken_apart() -> None:
    queue = RepairQueue()
    queue.add("blocks", b"1", Haste.SEEN)
    queue.add("state", b"2", Haste.SEEN)
    queue.add("state", b"3", Haste.USED)
    assert queue.take(9) == [("state", b"3", 0)]
    assert queue.take(9) == [("blocks", b"1", 0)]
    assert queue.take(9) == [("state", b"2", 0)]
    assert queue.take(9) == []


def test_what_is_gone_is_not_repaired() -> None:
    queue = RepairQueue()
    queue.add("blocks", b"1", Haste.USED)
    queue.add("blocks", b"2", Haste.USED)
    queue.forget("blocks", b"2")
    queue.forget("blocks", b"3")
    assert len(queue) == 1
    assert names(queue) == [b"1"]


def test_of_too_many_the_least_urgent_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrub sees them again."""
    monkeypatch.setattr(repairs, "_MOST", 2)
    queue = RepairQueue()
    queue.add("blocks", b"1", Haste.SEEN)
    queue.add("blocks", b"2", Haste.USED)
    queue.add("blocks", b"3", Haste.IN_DANGER)
    assert len(queue) == 2
    queue.add("blocks", b"4", Haste.SEEN)
    assert names(queue) == [b"3", b"2"]


def test_work_is_paid_from_a_budget() -> None:
    """Of at most a minute, from the first sweep on; what is spent beyond it is owed."""
    now = [100.0]
    money = Budget(10.0, lambda: now[0])
    assert money.has_some()
    money.spend(599)
    assert money.has_some()
    money.spend(51)
    now[0] += 4.9
    assert not money.has_some()
    now[0] += 0.2
    assert money.has_some()
    now[0] += 500.0
    assert money.has_some()
    money.spend(600)
    assert not money.has_some()


def test_work_on_the_side_waits_for_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the last of them has ended; and not for ever."""
    traffic, order = Traffic(), list[str]()
    monkeypatch.setattr(budget, "_YIELD_S", 1e3)

    def work() -> None:
        traffic.make_way()
        order.append("work")

    with traffic:
        with traffic:
            worker = threading.Thread(target=work)
            worker.start()
        order.append("read")
    worker.join()
    assert order == ["read", "work"]
    monkeypatch.setattr(budget, "_YIELD_S", 0.0)
    with traffic:
        traffic.make_way()
