"""Do calls go one behind another, and does none wait for ever?"""

import math
import threading
from typing import Any

import pytest
from deepinfer_core.stores.disk.turns import Turns
from deepinfer_core.testing.contracts.kv_store_suite import block, chain, key
from deepinfer_core.testing.store_groups import BLOCKS, FOREVER

WAIT_S = 60.0
"""Longer than anything takes on a busy machine."""


def test_one_goes_behind_another() -> None:
    turns, inside, most = Turns(math.inf), [0], [0]

    def go() -> None:
        for _ in range(200):
            with turns.taken(FOREVER):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                threading.Event().wait(1e-6)
                inside[0] -= 1

    threads = [threading.Thread(target=go) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(WAIT_S)
    assert most == [1]


@pytest.mark.parametrize(("wait_s", "deadline_s"), [(0.001, FOREVER), (math.inf, 0.0)])
def test_somebody_who_takes_long_is_not_waited_for(wait_s: float, deadline_s: float) -> None:
    turns, went = Turns(wait_s), threading.Event()
    with turns.taken(FOREVER):
        threading.Thread(target=_enter, args=(turns, went, deadline_s), daemon=True).start()
        assert went.wait(WAIT_S)


def test_a_turn_that_was_not_ones_own_is_left_to_whose_it_is() -> None:
    turns, went = Turns(math.inf), threading.Event()
    with turns.taken(FOREVER):
        with turns.taken(0.0):
            pass
        with turns.taken(0.0):
            pass
        thread = threading.Thread(target=_enter, args=(turns, went), daemon=True)
        thread.start()
        assert not went.wait(0.05)
    assert went.wait(WAIT_S)


def test_behind_a_long_turn_nobody_waits_until_one_is_short_again() -> None:
    now_s, went = [0.0], threading.Event()
    turns = Turns(WAIT_S, clock=lambda: now_s[0])
    with turns.taken(FOREVER):
        now_s[0] += WAIT_S
    waits: list[bool] = []
    for _ in range(2):
        went.clear()
        thread = threading.Thread(target=_enter, args=(turns, went))
        with turns.taken(FOREVER):
            thread.start()
            waits.append(not went.wait(0.05 if waits else WAIT_S))
        thread.join(WAIT_S)
    assert waits == [False, True]


def test_a_turn_ends_with_an_error() -> None:
    turns, went = Turns(math.inf), threading.Event()
    with pytest.raises(KeyError), turns.taken(FOREVER):
        raise KeyError
    threading.Thread(target=_enter, args=(turns, went), daemon=True).start()
    assert went.wait(WAIT_S)


def test_loads_take_turns(place: Any) -> None:
    store = place.opened()
    store._turns = Turns(math.inf)
    store.store("blocks", chain("a", 1), deadline_s=FOREVER)
    copy = bytearray(BLOCKS.block_bytes)
    thread = threading.Thread(
        target=store.load, args=("blocks", [key(("a", 0))], [copy]), kwargs={"deadline_s": FOREVER}
    )
    with store._turns.taken(FOREVER):
        thread.start()
        thread.join(0.05)
        assert thread.is_alive()
    thread.join(WAIT_S)
    assert copy == block(("a", 0))


def test_several_callers_get_what_they_asked_for(place: Any) -> None:
    store = place.opened()
    names = "abcd"
    for name in names:
        store.store("blocks", chain(name, 10), deadline_s=FOREVER)
    wrong: list[str] = []

    def read(name: str) -> None:
        keys = [key((name, at)) for at in range(10)]
        for _ in range(50):
            copies = [bytearray(BLOCKS.block_bytes) for _ in keys]
            found = store.load("blocks", keys, copies, deadline_s=FOREVER)
            if {one.status for one in found} != {"hit"} or copies != [
                block((name, at)) for at in range(10)
            ]:
                wrong.append(name)

    threads = [threading.Thread(target=read, args=(name,)) for name in names]
    for one in threads:
        one.start()
    for one in threads:
        one.join(WAIT_S)
    assert not any(one.is_alive() for one in threads)
    assert not wrong


def _enter(turns: Turns, went: threading.Event, deadline_s: float = FOREVER) -> None:
    with turns.taken(deadline_s):
        went.set()
