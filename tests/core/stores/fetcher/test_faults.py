"""What does an engine see of a store that is slow, hangs, fails or lies?"""

import os
import signal
from collections.abc import Callable
from pathlib import Path

from deepinfer_core.stores.traffic import Ended, Found
from deepinfer_core.testing.contracts.kv_store_suite import key
from deepinfer_core.testing.store_groups import STATES

from tests.core.stores.fetcher.conftest import Engine, blocks_of, states_of

SOON_S = 0.3
"""A deadline that passes in a test that waits for it."""


def test_a_slow_store_ends_a_prefix_where_it_is(engine: Engine) -> None:
    engine.keep("a", range(40))
    engine.rule({"call": "load", "does": 0.1})
    news = engine.news(engine.want("a", 40, fetch_s=0.35))
    assert news[-1].reason == "timeout"
    places = blocks_of("a", news)
    assert places == list(range(len(places)))
    assert len(places) < 40


def test_a_store_that_does_not_answer_in_time_is_a_timeout(engine: Engine) -> None:
    engine.keep("a", range(4))
    engine.rule({"call": "find", "does": "late"})
    assert engine.news(engine.want("a", 4))[1:] == [Ended(1, "timeout")]
    engine.rule({"call": "find", "does": "hang"})
    assert engine.news(engine.want("a", 4, match_s=SOON_S)) == [Ended(2, "timeout")]


def test_a_load_that_hangs_holds_up_nobody_else(engine: Engine) -> None:
    engine.keep("a", range(4))
    engine.keep("b", range(40))
    engine.rule({"call": "load", "key": key(("a", 0)).hex(), "does": "hang"})
    stuck = [engine.want("a", 4, fetch_s=SOON_S) for _ in range(3)]
    assert blocks_of("b", engine.news(engine.want("b", 40))) == list(range(40))
    assert [engine.ended(one) for one in stuck] == ["timeout"] * 3
    engine.rule()
    assert blocks_of("a", engine.news(engine.want("a", 4))) == [0, 1, 2, 3]


def test_where_every_thread_hangs_prefixes_end_at_once(engines: Callable[..., Engine]) -> None:
    engine = engines(read_threads=2, call_s=SOON_S)
    engine.keep("a", range(2))
    engine.rule({"call": "find", "does": "hang"})
    for _ in range(2):
        assert engine.ended(engine.want("a", 2, match_s=SOON_S)) == "timeout"
    engine.until(lambda: "every thread hangs" in engine.traffic.counts().problem)
    assert engine.ended(engine.want("a", 2)) == "unavailable"
    engine.rule()
    engine.until(lambda: engine.ended(engine.want("a", 2)) == "done")
    engine.until(lambda: not engine.traffic.counts().problem)


def test_a_store_that_raises_or_answers_nonsense_is_unavailable(engine: Engine) -> None:
    engine.keep("a", range(4))
    for does in ("raise", "short", "gone"):
        engine.rule({"call": "load", "does": does})
        news = engine.news(engine.want("a", 4))
        assert [type(one) for one in news] == [Found, Ended]
        assert news[-1].reason == "unavailable"
    engine.rule()
    assert blocks_of("a", engine.news(engine.want("a", 4))) == [0, 1, 2, 3]


def test_after_five_failures_nothing_is_asked_until_a_probe_succeeds(engine: Engine) -> None:
    engine.keep("a", range(4))
    engine.rule({"call": "find", "does": "gone"})
    for _ in range(5):
        assert len(engine.news(engine.want("a", 4))) == 2
    engine.until(lambda: len(engine.news(engine.want("a", 4))) == 1)  # its end alone
    engine.until(lambda: engine.traffic.counts().problem == "find: told to be gone")
    engine.rule()
    engine.until(lambda: engine.ended(engine.want("a", 4)) == "done")
    engine.until(lambda: not engine.traffic.counts().problem)


def test_writing_fails_without_taking_reading_along(engine: Engine) -> None:
    engine.keep("a", range(4))
    engine.rule({"call": "store", "does": "raise"})
    for place in range(6):
        engine.keep("b", [place])
    assert engine.traffic.counts().written == {"stored": 4, "unavailable": 6}
    assert blocks_of("a", engine.news(engine.want("a", 4))) == [0, 1, 2, 3]


def test_a_store_that_cannot_keep_up_leaves_no_slots_and_stops_nobody(
    engines: Callable[..., Engine], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.touch()
    store = {"is_persistent": True, "log": str(log)}
    engine = engines(departing_bytes=1 << 16, write_age_s=1.0, store=store)
    engine.rule({"call": "store", "does": "hang"})
    engine.hand_over("a", range(12))
    engine.until(lambda: "store 4" in log.read_text())
    assert engine.traffic.empty_slots("blocks", 2) == []
    assert engine.traffic.counts().writing == 12
    engine.until(lambda: engine.traffic.counts().written.get("timeout") == 8)  # four are in a call
    engine.keep("b", [0], STATES)
    engine.rule()
    engine.until(lambda: not engine.traffic.counts().writing)
    assert engine.traffic.counts().written == {"timeout": 8, "stored": 5}


def test_a_fetcher_that_stands_still_delays_no_prefix(engine: Engine) -> None:
    engine.keep("a", range(4))
    found = engine.traffic.process_id
    assert found is not None
    os.kill(found, signal.SIGSTOP)
    ticket = engine.want("a", 4, match_s=SOON_S)
    assert engine.news(ticket) == [Ended(ticket, "timeout")]
    os.kill(found, signal.SIGCONT)
    assert blocks_of("a", engine.news(engine.want("a", 4))) == [0, 1, 2, 3]
    assert len(engine.of(ticket)) == 1


def test_states_are_had_while_the_store_of_blocks_hangs(engines: Callable[..., Engine]) -> None:
    engine = engines(store={"is_persistent": True}, read_threads=1)
    engine.keep("a", [3], STATES)
    engine.rule({"call": "find", "does": "hang"})
    engine.want("a", 4)
    assert states_of("a", engine.news(engine.want("a", 4, has=4))) == [3]


def test_a_state_that_hangs_holds_up_no_other(engine: Engine) -> None:
    engine.keep("a", [0], STATES)
    engine.keep("b", [0], STATES)
    engine.rule({"call": "load", "key": key(("a", 0)).hex(), "does": "hang"})
    stuck = engine.want("a", 1, has=1, fetch_s=SOON_S)
    assert states_of("b", engine.news(engine.want("b", 1, has=1))) == [0]
    assert states_of("a", engine.news(stuck)) == []
