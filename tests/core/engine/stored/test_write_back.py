"""Does a store get every finished block once and in order, and never one that is not exact?"""

from dataclasses import replace
from itertools import pairwise

import pytest
from deepinfer_core.engine.stored.fetch import Fetch
from deepinfer_core.engine.stored.limits import StoreLimits
from deepinfer_core.engine.stored.stored_keys import StoredKeys
from deepinfer_core.stores.traffic import Ended, TrafficCounts
from deepinfer_core.testing.cached_prefix import CachedPrefix

from .conftest import LONGEST, answer_to, new_store


def tell_nothing(stored) -> None:
    """From now on every fetch ends at once, and says nothing of what is stored."""
    stored.traffic.want = lambda wanted: 0
    stored.traffic.poll = lambda: [Ended(0, "unavailable")]


def test_blocks_of_a_prompt_and_of_its_answer_are_stored_in_order(make_stored, text) -> None:
    stored = make_stored()
    answer = stored.ask(text[:10], 9).token_ids
    # The row of the last token is never fed.
    assert stored.stored == stored.keys([*text[:10], *answer])[:4]


def test_what_is_stored_is_not_stored_again(make_stored, text) -> None:
    first = make_stored()
    first.ask(text[:18])
    first.ask(text[:18])
    first.forget()
    first.ask(text[:18])
    assert first.stored == first.keys(text[:16])
    second = make_stored(first.traffic.store)
    second.ask(text[:26])
    assert second.stored == second.keys(text[:24])[4:]


def test_a_block_is_offered_again_when_the_store_may_have_lost_it(make_stored, text) -> None:
    stored = make_stored()
    stored.ask(text[:10])
    stored.now[0] = 3600.0
    stored.ask(text[:10])
    assert stored.stored == stored.keys(text[:8]) * 2
    assert stored.traffic.counts().written == {"stored": 3, "exists": 2}


def test_blocks_carry_their_namespace_depth_and_class(make_stored, text) -> None:
    stored = make_stored()
    seen = []
    store = stored.traffic.store.store
    stored.traffic.store.store = lambda group, items, **rest: (
        seen.extend((group, one.depth, one.namespace, one.retention) for one in items),
        store(group, items, **rest),
    )[1]
    stored.ask(text[:10], cache_salt="us", retention="chat")
    root = stored.engine.batch.pages.policy.chain("us").root
    assert seen == [
        ("blocks", 0, root, "chat"),
        ("blocks", 1, root, "chat"),
        ("state", 1, root, ""),
    ]


def test_of_the_states_of_a_sequence_the_newest_is_stored(make_stored, text) -> None:
    stored = make_stored(slots=1)
    answer = stored.ask(text[:10], 9).token_ids
    keys = stored.keys([*text[:10], *answer])
    assert stored.traffic.stored["state"][-1] == keys[3]


def test_a_step_copies_no_more_blocks_than_the_settings_say(make_stored, text) -> None:
    stored = make_stored(limits=StoreLimits(step_blocks=2))
    stored.submit(text[:30])
    counts = []
    while stored.engine.has_work:
        stored.step()
        counts.append(len(stored.stored))
    assert stored.stored == stored.keys(text[:28])
    assert max(b - a for a, b in pairwise(counts)) == 2


def test_where_the_store_takes_nothing_the_newest_blocks_are_dropped(make_stored, text) -> None:
    stored = make_stored(limits=StoreLimits(backlog_blocks=3), has_states=False)
    stored.traffic.is_hung = True
    number = stored.submit(text[:30])
    stored.step(3)
    stored.now[0] = 5.0
    stored.step(6)
    assert number in stored.done
    assert stored.exchange.counts.written == {"dropped": 4}
    stored.traffic.is_hung = False
    stored.run()
    assert stored.stored == stored.keys(text[:12])
    # The same prefix met again goes on where the chain ends, without a hole.
    stored.ask(text[:30])
    assert stored.stored == stored.keys(text[:24])


def test_a_backlog_that_nobody_takes_is_given_up(make_stored, text) -> None:
    stored = make_stored(slots=0)
    stored.submit(text[:30])
    stored.step(20)
    assert stored.engine.has_work
    stored.now[0] = 60.0
    stored.run()
    assert stored.exchange.counts.written["dropped"] == 8
    assert not stored.stored


def test_where_blocks_are_short_the_backlog_lets_go_of_its_own(make_stored, text) -> None:
    stored = make_stored(slots=0, blocks=16, rows=8)
    stored.submit(text[:30])
    stored.submit([1, *text[1:59]], 1)
    stored.step(60)
    assert len(stored.done) == 2
    assert all(done.error is None for done in stored.done.values())


def test_a_sequence_that_goes_on_offers_again_what_was_dropped(make_stored, text) -> None:
    stored = make_stored(has_states=False)
    stored.traffic.is_hung = True
    stored.submit(text[:10], 12)
    stored.step()
    stored.now[0] = 5.0
    stored.step(3)
    stored.exchange.make_room()
    stored.engine.check_integrity()
    assert stored.exchange.counts.written == {"dropped": 2}
    stored.traffic.is_hung = False
    stored.run()
    assert stored.stored == stored.keys([*text[:10], *answer_to(text[:10], 12)])[:5]


def test_a_block_whose_copy_failed_is_not_stored_but_offered_again(make_stored, text) -> None:
    fails = [True]

    def break_once() -> None:
        if fails:
            fails.clear()
            raise RuntimeError("broken on purpose")

    stored = make_stored(before_copy=break_once, has_states=False)
    stored.ask(text[:10])
    assert stored.exchange.counts.written["failed"] == 2
    assert not stored.stored
    assert not stored.traffic.slots_out
    stored.ask(text[:10])
    assert stored.stored == stored.keys(text[:8])


def test_nothing_of_an_approximate_sequence_is_stored(make_stored, text) -> None:
    stored = make_stored(has_states=False, recovery="bounded")
    stored.ask(text[:18])
    known = list(stored.stored)
    CachedPrefix(stored.engine.batch, text[:18]).drop_snapshots()
    usage = stored.ask(text[:26], 10).usage
    assert (usage.cached_tokens, usage.replayed_tokens) == (16, 4)
    assert stored.stored == known
    # An exact one does store what it computes.
    pages = stored.engine.batch.pages
    pages.policy = replace(pages.policy, recovery="exact")
    stored.ask(text[:26])
    assert stored.stored == stored.keys(text[:24])


def test_a_block_of_an_answer_is_stored_as_soon_as_it_is_full(make_stored, text) -> None:
    stored = make_stored(has_states=False)
    number = stored.submit(text[:10], 12)
    keys = stored.keys([*text[:10], *answer_to(text[:10], 12)])
    while len(stored.stored) < 4:
        assert number not in stored.done
        stored.step()
    assert stored.stored == keys[:4]
    stored.run()
    assert stored.stored == keys[:5]


def spoil_logits(stored) -> None:
    """From now on no row gives numbers."""
    runner, results = stored.engine.runner, stored.engine.runner.results
    runner.results = lambda handle: tuple(one._replace(invalid=True) for one in results(handle))


def test_a_block_that_is_full_in_a_step_without_numbers_is_shared_with_nobody(
    make_stored, text
) -> None:
    stored = make_stored()
    number = stored.submit(text[:11], 5)
    while not stored.engine.batch.get(number).output_count:
        stored.step()
    spoil_logits(stored)  # the next row ends the third block
    stored.run()
    assert stored.done[number].error is not None
    known = stored.keys([*text[:11], *answer_to(text[:11], 1)])
    assert stored.stored == known[:2]
    assert len(stored.engine.batch.pages.cache.match(known).block_ids) == 2


def test_what_waits_of_a_request_without_numbers_is_not_stored(make_stored, text) -> None:
    stored = make_stored(slots=0)
    other = stored.submit([7, *text[1:10]], 9)
    number = stored.submit(text[:42], 9)
    while not stored.engine.batch.get(number).output_count:
        stored.step()
    waiting = stored.engine.batch.get(number)
    waiting.is_exact = False
    stored.engine.abort(number)
    left = [block.sequence.sequence_id for block in stored.exchange._writing._backlog]
    assert set(left) == {other}
    assert stored.exchange.counts.written["dropped"] == 10
    stored.engine.check_integrity()


def test_closing_hands_over_what_waits(make_stored, text) -> None:
    stored = make_stored(limits=StoreLimits(step_blocks=1))
    number = stored.submit(text[:30])
    while number not in stored.done:
        stored.step()
    assert len(stored.stored) < 7
    stored.engine.close()
    assert stored.stored == stored.keys(text[:28])


def test_keys_are_known_for_a_while() -> None:
    now = [0.0]
    known = StoredKeys(lambda: now[0])
    known.add(b"a")
    assert b"a" in known
    assert b"b" not in known
    now[0] = 600.0
    assert b"a" not in known
    known.add(b"a")
    known.discard(b"a")
    assert b"a" not in known


def test_keys_reach_to_the_last_that_is_remembered_however_old_it_is() -> None:
    now, keys = [0.0], [bytes([number]) for number in range(9)]
    known = StoredKeys(lambda: now[0])
    assert known.reach(keys) == 0
    for key in keys[:6]:
        known.add(key)
    now[0] = 3600.0
    assert [known.reach(keys), known.reach(keys[:4]), known.reach(keys[6:])] == [6, 4, 0]
    known.discard(keys[5])  # the store has lost it
    assert known.reach(keys) == 5
    known.keep_only(set(keys[:2]))
    assert known.reach(keys) == 2


def test_the_answer_of_the_fake_runner_is_known(make_stored, text) -> None:
    """Otherwise wrong tokens would not show."""
    assert answer_to(text[: LONGEST - 5], 3) != answer_to([1, *text[1 : LONGEST - 5]], 3)


@pytest.mark.parametrize("blocks", [0, 2])
def test_what_a_fetch_does_not_find_is_offered_again(make_stored, text, blocks) -> None:
    stored = make_stored()
    stored.ask(text[:18])
    keys = stored.keys(text[:16])
    stored.forget()
    stored.traffic.store = new_store()
    if blocks:
        make_stored(stored.traffic.store).ask(text[: 4 * blocks + 2])
    stored.ask(text[:18])
    assert stored.stored == keys + keys[blocks:]
    assert stored.traffic.stored["state"] == [keys[3], keys[3]]
    assert stored.exchange.counts.fetches == ({"miss": 1, "done": 1} if blocks else {"miss": 2})


@pytest.mark.parametrize("reason", ["corrupt", "version", "lost", "timeout", "unavailable", "full"])
def test_what_is_forgotten_depends_on_how_a_fetch_ended(make_stored, text, reason) -> None:
    stored = make_stored(has_states=False)
    stored.ask(text[:18])
    keys = stored.keys(text[:16])
    stored.ask([7, *text[1:10]])
    others = stored.stored[4:]
    stored.forget()
    fetch = Fetch(keys=tuple(keys), first=0, deadline_s=9.0, came=1)
    stored.exchange._writing.ended(fetch, reason)
    tell_nothing(stored)
    stored.ask(text[:18])
    stored.ask([7, *text[1:10]])
    gone = {"corrupt": keys[1:], "version": keys[1:], "lost": keys + others}
    assert stored.stored[6:] == gone.get(reason, [])


def test_when_the_fetcher_was_started_again_everything_is_offered_again(make_stored, text) -> None:
    stored = make_stored()
    stored.ask(text[:10])
    stored.ask(text[:10])
    assert stored.stored == stored.keys(text[:8])
    stored.traffic.counts = lambda: TrafficCounts(restarts=1)
    stored.now[0] = 1.0
    stored.ask(text[:10])
    stored.ask(text[:10])
    assert stored.stored == stored.keys(text[:8]) * 2


def test_what_still_waits_is_not_offered_twice(make_stored, text) -> None:
    stored = make_stored(slots=0, has_states=False)
    stored.submit(text[:10], 3)
    stored.step(2)
    stored.exchange._writing.forget_all()
    stored.submit(text[:10])
    stored.step(3)
    assert stored.exchange.counts.backlog == 2


def test_a_state_is_known_for_no_longer_than_the_store_keeps_it(make_stored, text) -> None:
    stored = make_stored(limits=StoreLimits(state_retention_s=20.0))
    tell_nothing(stored)
    for now, times in ((0.0, 1), (19.0, 1), (21.0, 2)):
        stored.now[0] = now
        stored.forget()
        stored.ask(text[:10])
        assert len(stored.traffic.stored["state"]) == times


def test_blocks_that_the_store_has_are_counted_and_not_offered(make_stored, text) -> None:
    first = make_stored()
    first.ask(text[:18])
    assert first.exchange.counts.written["known"] == 0
    first.ask(text[:18])
    assert first.exchange.counts.written["known"] == 4
    second = make_stored(first.traffic.store)
    second.ask(text[:18])
    assert second.exchange.counts.written["known"] == 4
    assert second.stored == []
