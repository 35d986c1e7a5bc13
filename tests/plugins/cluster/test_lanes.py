"""Does a call that hangs keep its memory, and nobody else?"""

import math
import threading
import time
from collections.abc import Iterator

import pytest
from deepinfer_cluster.lanes import Lane, Lanes, NoAnswer

FOREVER = math.inf


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What calls wait for; open at the end of the test."""
    gate = threading.Event()
    yield gate
    gate.set()


def late(lanes: Lanes, gate: threading.Event) -> Lane:
    """A lane whose caller has left while its call waits."""
    with pytest.raises(NoAnswer) as caught, lanes.take(FOREVER) as lane:
        lanes.call(lane, gate.wait, time.monotonic())
    assert caught.value.outcome.status == "timeout"
    return lane


def test_a_call_gives_its_answer() -> None:
    lanes = Lanes(1, 4096)
    with lanes.take(FOREVER) as lane:
        assert lanes.call(lane, lambda: 7, FOREVER) == 7
        assert lanes.call(lane, lambda: 8, FOREVER) == 8
    lanes.close(lambda: None, 1.0)


def test_memory_of_lanes_is_apart_and_where_its_address_says() -> None:
    lanes = Lanes(3, 5000)
    assert (lanes.lane_bytes, lanes.all_bytes) == (8192, 3 * 8192)
    with lanes.take(FOREVER) as first, lanes.take(FOREVER) as second:
        assert second.address - first.address == len(first.view) == 8192
        first.view[:] = b"\1" * 8192
        assert bytes(second.view) == bytes(8192)
    lanes.close(lambda: None, 1.0)


def test_a_lane_that_was_left_is_not_taken_until_its_call_is_back(gate: threading.Event) -> None:
    lanes = Lanes(2, 4096)
    hung = late(lanes, gate)
    for _ in range(3):
        with lanes.take(FOREVER) as other:
            assert other is not hung
    gate.set()
    with lanes.take(FOREVER) as one, lanes.take(time.monotonic() + 60.0) as two:
        assert hung in (one, two)
    lanes.close(lambda: None, 1.0)


def test_when_all_were_left_nobody_waits_any_more(gate: threading.Event) -> None:
    lanes = Lanes(2, 4096)
    late(lanes, gate)
    late(lanes, gate)
    with pytest.raises(NoAnswer) as caught, lanes.take(FOREVER):
        pass
    assert caught.value.outcome.status == "unavailable"
    assert "earlier calls" in caught.value.outcome.reason


def test_a_lane_that_somebody_uses_is_waited_for_until_the_deadline(gate: threading.Event) -> None:
    lanes = Lanes(1, 4096)
    with lanes.take(FOREVER), pytest.raises(NoAnswer) as caught:  # noqa: SIM117
        with lanes.take(time.monotonic() + 0.01):
            pass
    assert caught.value.outcome.status == "timeout"
    lanes.close(lambda: None, 1.0)


def test_what_the_library_raises_is_an_outcome() -> None:
    lanes = Lanes(1, 4096)
    with pytest.raises(NoAnswer) as caught, lanes.take(FOREVER) as lane:
        lanes.call(lane, lambda: {}[1], FOREVER)
    assert caught.value.outcome.status == "unavailable"
    assert caught.value.outcome.reason == "the pool's client raised KeyError"
    with lanes.take(FOREVER) as lane:
        assert lanes.call(lane, lambda: 1, FOREVER) == 1
    lanes.close(lambda: None, 1.0)


def test_what_nobody_waits_for_has_a_lane_of_its_own(gate: threading.Event) -> None:
    lanes, used = Lanes(2, 4096), []

    def work(lane: Lane) -> None:
        used.append(lane)
        gate.wait()
        raise OSError("nobody hears of it")

    assert lanes.start(work)
    with lanes.take(FOREVER) as lane:
        assert not lanes.start(work)
        assert lane not in used
    gate.set()
    with lanes.take(FOREVER), lanes.take(FOREVER):
        pass
    lanes.close(lambda: None, 1.0)


def test_closing_ends_everything_at_once_when_nothing_hangs() -> None:
    lanes, ends = Lanes(2, 4096), []
    lanes.close(lambda: ends.append(threading.current_thread()), 60.0)
    assert ends == [threading.current_thread()]
    with pytest.raises(NoAnswer) as caught, lanes.take(FOREVER):
        pass
    assert caught.value.outcome.reason == "the store is closed"
    assert not lanes.start(lambda lane: None)


def test_the_last_call_to_come_back_ends_what_was_closed(gate: threading.Event) -> None:
    lanes, ended = Lanes(2, 4096), threading.Event()
    late(lanes, gate)
    late(lanes, gate)
    lanes.close(ended.set, 0.0)
    assert not ended.is_set()
    gate.set()
    assert ended.wait(60.0)
