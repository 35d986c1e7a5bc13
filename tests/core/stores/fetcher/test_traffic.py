"""Do blocks come from a store into an engine, and back, through a process of its own?"""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from deepinfer_core.errors import ConfigError, PluginFailed
from deepinfer_core.stores.traffic import Arrived, Ended, Finished, Found
from deepinfer_core.testing.contracts.kv_store_suite import block, key
from deepinfer_core.testing.store_groups import BLOCKS, STATES

from tests.core.stores.fetcher.conftest import NAMESPACE, Engine, blocks_of, states_of


def test_blocks_that_were_handed_over_come_back_in_order(engine: Engine) -> None:
    engine.keep("a", range(30))
    news = engine.news(engine.want("a", 40))
    assert [type(one) for one in (news[0], news[-1])] == [Found, Ended]
    assert news[0].blocks == 30
    assert blocks_of("a", news) == list(range(30))
    assert news[-1].reason == "done"


def test_a_prefix_of_which_nothing_is_there_is_a_miss(engine: Engine) -> None:
    news = engine.news(engine.want("a", 5))
    assert news == [Found(1, 0), Ended(1, "miss")]


def test_the_last_state_before_the_end_comes_behind_the_blocks(engine: Engine) -> None:
    engine.keep("a", range(30))
    engine.keep("a", [3, 20, 31], STATES)
    news = engine.news(engine.want("a", 40))
    assert states_of("a", news) == [20]
    assert isinstance(news[-2], Arrived)
    assert news[-2].is_state
    assert states_of("a", engine.news(engine.want("a", 40, state_group=None))) == []


def test_a_state_far_before_the_end_is_found(engine: Engine) -> None:
    engine.keep("a", range(100))
    engine.keep("a", [2], STATES)
    assert states_of("a", engine.news(engine.want("a", 100))) == [2]


def test_states_of_blocks_that_an_engine_has_are_of_use_to_it(engine: Engine) -> None:
    engine.keep("a", [3], STATES)
    news = engine.news(engine.want("a", 5, has=5))
    assert states_of("a", news) == [3]
    assert news[-1].reason == "done"
    engine.keep("a", [5, 6])
    news = engine.news(engine.want("a", 9, has=5))
    assert news[0].blocks == 2
    assert blocks_of("a", news) == [5, 6]
    assert states_of("a", news) == [3]


@pytest.mark.parametrize("is_remote", [False, True])
def test_an_engine_knows_whether_its_store_asks_other_machines(
    engines: Callable[..., Engine], is_remote: bool
) -> None:
    assert engines(store={"is_remote": is_remote}).traffic.is_remote == is_remote


def test_a_match_begins_where_it_is_expected_to_end(engine: Engine) -> None:
    engine.keep("a", range(30))
    for changes, probes in (
        ({"expected": 30}, 2),
        ({"expected": 40}, 2 * 15 + 1),  # only one of 40 is asked for first, and is not there
        ({"has": 10, "expected": 30}, 2),
    ):
        before = engine.traffic.counts().probes
        found = engine.news(engine.want("a", 40, **changes))[0]
        assert found.blocks == 30 - changes.get("has", 0)
        assert engine.traffic.counts().probes - before <= probes
        assert (engine.traffic.counts().probes - before == 2) == (probes == 2)


def test_a_hole_ends_a_prefix_and_its_state_lies_before_it(engine: Engine) -> None:
    engine.keep("a", [0, 1, 2, 3, 4, 6, 7])
    engine.keep("a", [4, 6], STATES)
    news = engine.news(engine.want("a", 8))
    assert blocks_of("a", news) == [0, 1, 2, 3, 4]
    assert states_of("a", news) == [4]


def test_blocks_come_a_second_time_from_slots_that_were_given_back(engine: Engine) -> None:
    engine.keep("a", range(30))
    for _ in range(20):  # 600 blocks through 192 slots
        for one in engine.news(engine.want("a", 30)):
            if isinstance(one, Arrived):
                blocks_of("a", [one])
                engine.traffic.give_back(one.slots)
    assert engine.traffic.counts().fetched_blocks == 600


def test_two_prefixes_share_the_slots_of_a_block_until_both_gave_it_back(engine: Engine) -> None:
    engine.keep("a", range(4))
    first, second = (
        [one.slots for one in engine.news(engine.want("a", 4)) if isinstance(one, Arrived)]
        for _ in range(2)
    )
    shown = [
        [(slot.number, slot.generation) for part in one for slot in part] for one in (first, second)
    ]
    assert shown[0] == shown[1]
    engine.traffic.give_back([slot for part in first for slot in part])
    engine.keep("b", range(100))
    blocks_of("b", engine.news(engine.want("b", 100)))
    assert all(
        slot.view == block(("a", place))
        for place, slot in enumerate(slot for part in second for slot in part)
    )


def test_a_slot_is_given_back_once(engine: Engine) -> None:
    engine.keep("a", [0])
    (slot,) = next(
        one.slots for one in engine.news(engine.want("a", 1)) if isinstance(one, Arrived)
    )
    engine.traffic.give_back([slot])
    with pytest.raises(ValueError, match="not the engine's any more"):
        engine.traffic.give_back([slot])
    (empty,) = engine.traffic.empty_slots("blocks", 1)
    engine.traffic.give_back([empty])
    with pytest.raises(ValueError, match="not the engine's any more"):
        engine.traffic.hand_over([Finished(empty, key(0), NAMESPACE, 0, "chat")])


def test_slots_to_be_filled_come_back_when_their_blocks_are_stored(engine: Engine) -> None:
    many = len(engine.traffic.empty_slots("blocks", 10_000))
    assert many == (1 << 20) * 3 // 4 // 4096
    assert engine.traffic.empty_slots("blocks", 3) == []
    assert engine.traffic.counts().no_slots == 10_000 - many + 3


def test_more_blocks_than_slots_pass_through(engines: Callable[..., Engine]) -> None:
    engine = engines(departing_bytes=1 << 16)
    for begin in range(0, 48, 12):
        engine.keep("a", range(begin, begin + 12))
    assert engine.traffic.counts().written == {"stored": 48}


def test_a_block_that_is_there_is_counted_and_not_stored_again(engine: Engine) -> None:
    engine.keep("a", range(5))
    engine.rule({"call": "store", "does": "raise"})
    engine.keep("a", range(5))
    assert engine.traffic.counts().written == {"stored": 5, "exists": 5}


def test_a_cancelled_prefix_says_nothing_more_and_its_slots_are_empty(engine: Engine) -> None:
    for name in "abcdefghij":
        engine.keep(name, range(36))
    for name in "abcde" * 5:
        before = engine.traffic.counts().fetched_blocks
        ticket = engine.want(name, 36)
        engine.until(lambda before=before: engine.traffic.counts().fetched_blocks > before)
        engine.traffic.cancel(ticket)
    assert engine.traffic.poll() == []
    for name in "fghij":  # 180 blocks in 192 slots
        assert blocks_of(name, engine.news(engine.want(name, 36, fetch_s=5.0))) == [*range(36)]
    assert sum(engine.traffic.counts().ended.values()) == 30


def test_blocks_that_come_for_a_prefix_that_has_ended_leave_their_slots(engine: Engine) -> None:
    for name in "abcdefghij":
        engine.keep(name, range(36))
    for number, name in enumerate("abcde" * 20):
        ticket = engine.want(name, 36)
        time.sleep(number * 2e-5)  # so that some are cancelled while their blocks are on the way
        engine.traffic.cancel(ticket)
    for name in "fghij":
        assert blocks_of(name, engine.news(engine.want(name, 36, fetch_s=5.0))) == [*range(36)]


def test_what_makes_no_sense_is_refused(engine: Engine) -> None:
    for changes in ({"keys": (b"short",)}, {"group": "other"}, {"state_group": "other"}):
        with pytest.raises(ValueError, match="found"):
            engine.want("a", 1, **changes)
    with pytest.raises(ValueError, match="found group 'other'"):
        engine.traffic.empty_slots("other", 1)
    (slot,) = engine.traffic.empty_slots("blocks", 1)
    for fields in ((key(0), b"short", 0, "chat"), (key(0), NAMESPACE, -1, "chat")):
        with pytest.raises(ValueError, match="found"):
            engine.traffic.hand_over([Finished(slot, *fields)])
    engine.traffic.give_back([slot])


def test_traffic_does_not_decide_how_long_states_are_kept(engine: Engine) -> None:
    (slot,) = engine.traffic.empty_slots("state", 1)
    engine.traffic.hand_over([Finished(slot, key(0), NAMESPACE, 0, "unknown")])
    engine.until(lambda: engine.traffic.counts().written)
    assert engine.traffic.counts().written == {"stored": 1}


def test_states_stay_out_of_a_store_that_outlives_processes(
    engines: Callable[..., Engine],
) -> None:
    engine = engines(store={"is_persistent": True})
    engine.rule({"call": "store", "key": key(("a", 3)).hex(), "does": "raise"})
    engine.keep("a", [3], STATES)
    assert engine.traffic.counts().written == {"stored": 1}
    assert states_of("a", engine.news(engine.want("a", 4, has=4))) == [3]


def test_states_leave_memory_for_new_ones(engines: Callable[..., Engine]) -> None:
    engine = engines(store={"is_persistent": True}, state_bytes=4 * (STATES.block_bytes + 192))
    for place in range(8):
        engine.keep("a", [place], STATES)
    assert states_of("a", engine.news(engine.want("a", 8, has=8))) == [7]
    assert states_of("a", engine.news(engine.want("a", 4, has=4))) == []


def test_a_store_that_cannot_be_opened_says_why(engines: Callable[..., Engine]) -> None:
    with pytest.raises(PluginFailed, match="could not be built"):
        engines(store={"folder": 3})
    with pytest.raises(ConfigError, match="no block of blocks"):
        engines(arriving_bytes=BLOCKS.block_bytes)


def test_after_its_end_nothing_comes(engine: Engine) -> None:
    engine.keep("a", range(3))
    engine.traffic.close()
    engine.traffic.close()
    assert engine.ended(engine.want("a", 3)) == "unavailable"
    assert engine.traffic.empty_slots("blocks", 1) == []
    assert engine.traffic.counts().problem == "it was closed"


def test_what_was_handed_over_is_stored_before_the_end(engines: Callable[..., Engine]) -> None:
    engine = engines()
    engine.rule({"call": "store", "does": 0.05})
    engine.hand_over("a", range(20))
    engine.traffic.close()
    assert engine.traffic.counts().written == {"stored": 20}


def test_blocks_and_states_of_other_machines_are_named(engines: Callable[..., Engine]) -> None:
    for is_remote in (False, True):
        engine = engines(store={"is_remote": is_remote})
        engine.keep("a", range(6))
        engine.keep("a", [5], STATES)
        news = [one for one in engine.news(engine.want("a", 6)) if isinstance(one, Arrived)]
        remote = [place for one in news if not one.is_state for place in sorted(one.remote)]
        assert remote == (list(range(6)) if is_remote else [])
        assert [bool(one.remote) for one in news if one.is_state] == [is_remote]
        assert engine.traffic.counts().fetched_batches == len(news)


def test_stores_tell_what_they_hold(engines: Callable[..., Engine]) -> None:
    engine = engines(store={"is_persistent": True})
    engine.until(lambda: set(engine.traffic.counts().stores) == {"blocks", "state"})
    assert engine.traffic.counts().stores["blocks"].capacity_bytes == 64 << 20
    together = engines()
    together.until(lambda: set(together.traffic.counts().stores) == {"blocks"})


def test_a_store_is_swept_and_uses_are_noted(
    engines: Callable[..., Engine], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.touch()
    engine = engines(sweep_every_s=0.05, store={"log": str(log)})
    engine.keep("a", range(4))
    engine.until(lambda: log.read_text().count("sweep") > 2)
    assert "touch" not in log.read_text()
    assert engine.ended(engine.want("a", 5, retention="agent")) == "done"
    engine.until(lambda: "touch 4 agent" in log.read_text())
    engine.keep("a", [3])
    engine.until(lambda: "touch 1 chat" in log.read_text())
