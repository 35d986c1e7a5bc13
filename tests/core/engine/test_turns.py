"""Threads that take turns, and what may happen within a turn."""

import signal
from collections.abc import Iterator
from threading import Event, Thread, main_thread

import pytest
from deepinfer_core.engine.turns import Turns
from deepinfer_core.errors import EngineError

WAIT_S = 10


def wait_in_line(turns: Turns, count: int) -> None:
    while len(turns._queue) < count:
        Event().wait(0.001)


def test_turns_come_in_the_order_in_which_threads_began_to_wait() -> None:
    """However soon the one before wants another turn."""
    turns, order = Turns(), []

    def take(name: str) -> None:
        with turns.take():
            order.append(name)

    threads = [Thread(target=take, args=(name,)) for name in ("first", "second", "third")]
    with turns.take():
        for count, thread in enumerate(threads, 1):
            thread.start()
            wait_in_line(turns, count)
    for _ in range(3):
        take("greedy")
    for thread in threads:
        thread.join(WAIT_S)
    assert order == ["first", "second", "third", "greedy", "greedy", "greedy"]


@pytest.fixture
def interrupting() -> Iterator[None]:
    """A signal that interrupts the main thread once, however often it is sent."""
    came = []

    def interrupt(number: int, frame: object) -> None:
        came.append(number)
        if len(came) == 1:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("interrupting")
def test_one_who_is_interrupted_while_it_waits_is_not_waited_for() -> None:
    turns, order = Turns(), []
    has_turn, is_out, main = Event(), Event(), main_thread().ident

    def hold() -> None:
        with turns.take():
            has_turn.set()
            wait_in_line(turns, 1)
            # One that comes just before the thread falls asleep does not wake it.
            while not is_out.wait(0.01):
                signal.pthread_kill(main, signal.SIGUSR1)
            order.append("held")

    holder = Thread(target=hold)
    holder.start()
    assert has_turn.wait(WAIT_S)
    with pytest.raises(KeyboardInterrupt), turns.take():
        order.append("never")
    assert not turns._queue
    is_out.set()
    with turns.take():
        order.append("again")
    holder.join(WAIT_S)
    assert order == ["held", "again"]


def test_a_handler_that_comes_while_its_thread_moves_is_put_off_and_cannot_wait() -> None:
    turns, done = Turns(), []
    turns._mine.state = "moving"
    turns.soon(lambda: done.append(1))
    with pytest.raises(EngineError, match="cannot wait"), turns.take():
        done.append(2)
    assert (done, turns.is_moving, turns.is_mine) == ([], True, False)
    turns._mine.state = None
    with turns.take():
        assert turns.is_mine
    assert done == [1]


def test_what_comes_while_somebody_looks_at_the_queue_is_not_waited_for() -> None:
    turns, done = Turns(), []
    with turns._guard:
        turns.soon(lambda: done.append(1))  # would wait for itself for ever
    assert done == []
    with turns.take():
        pass
    assert done == [1]


def test_a_turn_within_a_turn_is_part_of_it() -> None:
    turns, done = Turns(), []
    with turns.take():
        with turns.take():
            done.append(1)
        other = Thread(target=lambda: turns.soon(lambda: done.append(2)))
        other.start()
        other.join(WAIT_S)
        assert done == [1]
    assert done == [1, 2]


def test_what_is_to_be_done_soon_is_done_at_once_if_nobody_has_a_turn() -> None:
    turns, done = Turns(), []
    turns.soon(lambda: done.append(1))
    assert done == [1]


def test_what_is_to_be_done_soon_waits_for_the_turn_of_its_own_thread_too() -> None:
    turns, done = Turns(), []
    with turns.take():
        turns.soon(lambda: done.append(1))
        assert done == []
    assert done == [1]


def test_a_turn_that_fails_still_does_what_was_to_be_done_and_lets_the_next_one_in() -> None:
    turns, done = Turns(), []

    def fail() -> None:
        turns.soon(lambda: done.append(1))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), turns.take():
        fail()
    assert done == [1]
    other = Thread(target=lambda: turns.soon(lambda: done.append(2)))
    other.start()
    other.join(WAIT_S)
    assert done == [1, 2]


def test_what_is_asked_for_while_things_are_caught_up_comes_behind_them() -> None:
    turns, done = Turns(), []

    def first() -> None:
        turns.soon(lambda: done.append("second"))
        done.append("first")

    turns.soon(first)
    assert done == ["first", "second"]
