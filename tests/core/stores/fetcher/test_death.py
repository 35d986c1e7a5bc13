"""What does an engine see when its fetcher dies, and a fetcher when its engine does?"""

import os
import signal
from collections.abc import Callable

from deepinfer_core.channel.restarts import Restarts
from deepinfer_core.stores.traffic import Arrived, Ended, Finished
from deepinfer_core.testing.contracts.kv_store_suite import block, key

from tests.core.stores.fetcher.conftest import Engine, blocks_of


def kill(engine: Engine) -> None:
    """End the fetcher by force."""
    found = engine.traffic.process_id
    assert found is not None
    os.kill(found, signal.SIGKILL)


def test_what_was_wanted_is_lost_and_the_next_fetcher_serves(engine: Engine) -> None:
    engine.rule({"call": "load", "does": "hang"})
    engine.keep("a", range(5))
    ticket = engine.want("a", 5)
    engine.until(lambda: engine.of(ticket))
    kill(engine)
    assert engine.news(ticket)[-1] == Ended(ticket, "lost")
    engine.rule()
    engine.until(lambda: not engine.traffic.counts().problem)
    assert engine.traffic.counts().restarts == 1
    engine.keep("a", range(5))
    assert blocks_of("a", engine.news(engine.want("a", 5))) == [0, 1, 2, 3, 4]


def test_slots_that_the_engine_reads_stay_its_own(engine: Engine) -> None:
    engine.keep("a", range(20))
    slots = [
        slot
        for one in engine.news(engine.want("a", 20))
        if isinstance(one, Arrived)
        for slot in one.slots
    ]
    kill(engine)
    engine.until(lambda: engine.traffic.counts().restarts)
    engine.until(lambda: not engine.traffic.counts().problem)
    for begin in range(0, 180, 60):
        engine.keep("b", range(begin, begin + 60))
    ticket = engine.want("b", 180)
    engine.until(lambda: len(blocks_of("b", engine.of(ticket))) == 172)  # of 192 slots
    assert [slot.view == block(("a", place)) for place, slot in enumerate(slots)] == [True] * 20
    engine.traffic.give_back(slots)
    assert blocks_of("b", engine.news(ticket)) == list(range(180))


def test_slots_that_were_handed_over_are_empty_again(engine: Engine) -> None:
    many = len(lent := engine.traffic.empty_slots("blocks", 1000))
    engine.traffic.give_back(lent)
    engine.rule({"call": "store", "does": "hang"})
    engine.hand_over("a", range(20))
    kill(engine)
    engine.until(lambda: engine.traffic.counts().restarts)
    engine.until(lambda: not engine.traffic.counts().problem)
    assert engine.traffic.counts().written == {"lost": 20}
    assert len(engine.traffic.empty_slots("blocks", 1000)) == many


def test_a_fetcher_that_dies_time_after_time_is_given_up(engines: Callable[..., Engine]) -> None:
    engine = engines(restarts=Restarts(first_wait_s=0.01, most=2))
    for restarts in range(3):
        engine.until(lambda: not engine.traffic.counts().problem)
        assert engine.traffic.counts().restarts == restarts
        kill(engine)
        engine.until(lambda: engine.traffic.counts().problem)
    assert "signal 9; it is not started again" in engine.traffic.counts().problem
    assert engine.ended(engine.want("a", 5)) == "unavailable"


def test_slots_of_a_dead_fetcher_can_be_given_back_and_handed_over(
    engines: Callable[..., Engine],
) -> None:
    engine = engines(restarts=Restarts(first_wait_s=3.0))
    engine.keep("a", [0])
    (one,) = [one for one in engine.news(engine.want("a", 1)) if isinstance(one, Arrived)]
    many = len(slots := engine.traffic.empty_slots("blocks", 1000))
    engine.traffic.give_back(slots[1:])
    kill(engine)
    engine.until(lambda: engine.traffic.counts().problem)
    engine.traffic.give_back(one.slots)
    engine.traffic.hand_over([Finished(slots[0], key(0), b"n" * 32, 0, "chat")])
    assert engine.traffic.counts().written == {"stored": 1, "unavailable": 1}
    assert engine.traffic.empty_slots("blocks", 1) == []
    engine.until(lambda: not engine.traffic.counts().problem)
    assert len(engine.traffic.empty_slots("blocks", 1000)) == many
