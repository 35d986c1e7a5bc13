"""Do sequences get from a store what they lack, and wait for no longer than that is worth?"""

from collections.abc import Callable
from functools import partial

from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.stored.arrivals import Arrivals
from deepinfer_core.engine.stored.counts import StoreCounts
from deepinfer_core.engine.stored.fetch import Fetch
from deepinfer_core.engine.stored.limits import StoreLimits
from deepinfer_core.errors import DeadlineExceeded
from deepinfer_core.interfaces.kv_store import Outcome
from deepinfer_core.stores.traffic import Arrived
from deepinfer_core.testing.cached_prefix import CachedPrefix
from deepinfer_core.testing.fake_pages import FakePages
from deepinfer_core.testing.fake_runner import FakeRunner
from deepinfer_core.testing.late_stream import LateStream

MakeStored = Callable[..., object]


def test_another_engine_finds_whole_blocks_and_the_state_at_their_end(make_stored, text) -> None:
    first = make_stored()
    assert first.ask(text[:18]).usage.stored_tokens == 0
    assert first.exchange.counts.fetches == {"miss": 1}
    usage = make_stored(first.traffic.store).ask(text[:18]).usage
    assert (usage.cached_tokens, usage.stored_tokens, usage.replayed_tokens) == (16, 16, 0)


def test_without_states_as_much_is_fed_again_as_the_same_bits_take(make_stored, text) -> None:
    first = make_stored(has_states=False)
    first.ask(text[:18])
    second = make_stored(first.traffic.store)
    usage = second.ask(text[:18]).usage
    # Two layers of windows of 4 tokens reach 6 tokens back, so 8 in whole blocks.
    assert (usage.stored_tokens, usage.replayed_tokens) == (16, 8)
    assert second.traffic.wanted[0].state_group is None


def test_what_is_in_memory_is_not_asked_for(make_stored, text) -> None:
    stored = make_stored()
    stored.ask(text[:9])
    usage = stored.ask(text[:18]).usage
    assert (usage.cached_tokens, usage.stored_tokens) == (8, 0)
    keys = tuple(stored.keys(text[:16]))
    assert [one.keys for one in stored.traffic.wanted] == [keys[:2], keys[2:]]
    assert stored.ask(text[:18]).usage.cached_tokens == 16
    assert stored.exchange.counts.unasked == {"in_memory": 1}
    stored.ask(text[:4])
    assert stored.exchange.counts.unasked == {"in_memory": 1, "too_short": 1}


def test_the_store_is_told_how_much_of_a_text_it_had_when_it_was_met_last(
    make_stored, text
) -> None:
    stored = make_stored()
    stored.ask(text[:18])
    stored.now[0] = 3600.0  # long after its blocks count as stored
    stored.forget()
    stored.ask(text[:42])  # a later turn
    stored.forget()
    stored.ask([*text[:9], *range(30)])  # another end
    stored.forget()
    stored.ask([7, *text[1:18]])
    assert [one.expected for one in stored.traffic.wanted] == [0, 4, 2, 0]
    assert [len(one.keys) for one in stored.traffic.wanted] == [4, 10, 9, 4]


def test_a_state_that_memory_has_lost_comes_with_the_block_before_it(make_stored, text) -> None:
    stored = make_stored()
    stored.ask(text[:18])
    CachedPrefix(stored.engine.batch, text[:18]).drop_snapshots()
    usage = stored.ask(text[:18]).usage
    assert (usage.cached_tokens, usage.stored_tokens, usage.replayed_tokens) == (16, 0, 0)
    last = stored.traffic.wanted[-1]
    assert last.keys == tuple(stored.keys(text[:16])[3:])


def test_a_prefix_is_asked_for_under_its_salt_and_class(make_stored, text) -> None:
    stored = make_stored()
    stored.ask(text[:10], cache_salt="us", retention="chat")
    [wanted] = stored.traffic.wanted
    assert (wanted.retention, wanted.group) == ("chat", "blocks")
    assert list(wanted.keys) == stored.keys(text[:8], salt="us")


def test_users_with_other_salts_find_nothing_and_those_with_the_same_do(make_stored, text) -> None:
    first = make_stored()
    first.ask(text[:18], cache_salt="us")
    second = make_stored(first.traffic.store)
    assert second.ask(text[:18], cache_salt="them").usage.cached_tokens == 0
    assert second.ask(text[:18]).usage.cached_tokens == 0
    assert second.ask(text[:18], cache_salt="us").usage.stored_tokens == 16


def test_others_go_on_while_one_waits(make_stored, text) -> None:
    first = make_stored()
    first.ask(text[:18])
    stored = make_stored(first.traffic.store, late_polls=6)
    waiting, other = stored.submit(text[:18]), stored.submit([1, 2, 3])
    stored.step(3)
    assert other in stored.done
    assert waiting not in stored.done
    stored.run()
    assert stored.done[waiting].usage.stored_tokens == 16


def test_nobody_waits_for_longer_than_the_settings_allow(make_stored, text) -> None:
    stored = make_stored(limits=StoreLimits(fetch_timeout_s=2.0))
    stored.traffic.is_hung = True
    number = stored.submit(text[:18])
    stored.step(5)
    assert number not in stored.done
    stored.now[0] = 2.0
    stored.step(5)
    assert stored.done[number].usage.cached_tokens == 0
    assert stored.exchange.counts.fetches == {"abandoned": 1}


def test_behind_a_match_that_was_late_a_prompt_has_what_is_in_memory(make_stored, text) -> None:
    first = make_stored()
    first.ask(text[:26])
    stored = make_stored(first.traffic.store)
    stored.ask(text[:9])
    [before] = stored.traffic.wanted
    assert before.match_s == StoreLimits().match_timeout_s == 0.005
    stored.traffic.store.find = lambda group, keys, **rest: [Outcome(status="timeout")] * len(keys)
    stored.traffic._end = partial(ended_late, stored.traffic._end)
    usage = stored.ask(text[:26]).usage
    assert (usage.cached_tokens, usage.stored_tokens) == (8, 0)
    assert stored.exchange.counts.fetches == {"done": 1, "timeout": 1}


def ended_late(end: Callable[..., None], prefix: object, reason: str) -> None:
    """A fetcher says so of what it could not find out in time."""
    end(prefix, "timeout" if reason == "miss" else reason)


def test_nobody_waits_for_longer_than_computing_would_take(make_stored, text) -> None:
    stored = make_stored(limits=StoreLimits(fetch_timeout_s=100.0, patience=2.0))
    stored.exchange.saw(prompt_rows=100, decode_rows=0, elapsed_s=10.0)
    stored.submit(text[:18])
    stored.step()
    [wanted] = stored.traffic.wanted
    # 16 rows at 10 a second, twice.
    assert wanted.fetch_s == 3.2


def test_of_what_was_given_up_the_part_that_has_come_is_used(make_stored, text) -> None:
    first = make_stored()
    first.ask(text[:26])
    stored = make_stored(first.traffic.store, batch_blocks=2)
    number = stored.submit(text[:26])
    stored.step(2)
    stored.traffic.is_hung = True
    stored.now[0] = 10.0
    stored.step(8)
    assert stored.done[number].usage.stored_tokens == 8
    assert stored.exchange.counts.fetches == {"abandoned": 1}
    assert not stored.traffic.slots_out


def test_a_damaged_block_ends_the_prefix_before_it(make_stored, text) -> None:
    first = make_stored()
    first.ask(text[:26])
    keys = first.keys(text[:24])
    second = make_stored(first.traffic.store)
    load, corrupt = second.traffic.store.load, Outcome(status="corrupt", reason="on purpose")

    def damaged(group: str, asked: list[bytes], *rest: object, **more: float) -> list[Outcome]:
        found = load(group, asked, *rest, **more)
        return [corrupt if k == keys[3] else x for k, x in zip(asked, found, strict=True)]

    second.traffic.store.load = damaged
    assert second.ask(text[:26]).usage.stored_tokens == 12
    assert second.exchange.counts.fetches == {"corrupt": 1}
    # It was computed, and is offered to the store, which may have thrown it away.
    assert second.stored == keys[3:]


def test_a_request_that_ends_while_it_waits_leaves_nothing(make_stored, text) -> None:
    first = make_stored()
    first.ask(text[:26])
    stored = make_stored(first.traffic.store, batch_blocks=1)
    aborted = stored.submit(text[:26])
    late = stored.submit(text[:22], timeout_s=1.0)
    stored.step(3)
    assert stored.engine.abort(aborted) is not None
    stored.now[0] = 1.0
    stored.step()
    assert isinstance(stored.done[late].error, DeadlineExceeded)
    assert stored.exchange.counts.fetches == {"left": 2}
    assert not stored.engine.has_work
    assert not stored.traffic.slots_out
    stored.engine.check_integrity()
    assert stored.engine.batch.pages.cache.free_blocks == 64


def test_a_reset_gives_all_slots_back(make_stored, text) -> None:
    first = make_stored()
    first.ask(text[:26])
    stored = make_stored(first.traffic.store, batch_blocks=1)
    stored.submit(text[:26])
    stored.step(3)
    stored.engine.reset()
    assert not stored.traffic.slots_out
    assert stored.ask(text[:26]).usage.stored_tokens == 24


def test_blocks_whose_copy_failed_are_computed(make_stored, text) -> None:
    first = make_stored(has_states=False)
    first.ask(text[:26])
    copies = iter([False, True])

    def break_the_second() -> None:
        if next(copies, False):
            raise RuntimeError("broken on purpose")

    stored = make_stored(first.traffic.store, batch_blocks=2, before_copy=break_the_second)
    assert stored.ask(text[:26]).usage.stored_tokens == 8
    assert stored.exchange.counts.fetches == {"failed": 1}


def test_samples_of_one_prompt_fetch_it_once(make_stored, text) -> None:
    first = make_stored()
    first.ask(text[:18])
    stored = make_stored(first.traffic.store)
    params = SamplingParams(max_tokens=2, n=3)
    leader = stored.engine.submit(0, text[:18], params)
    for sample in (1, 2):
        stored.engine.submit(0, text[:18], params, sample=sample, follows=leader)
    stored.run()
    assert len(stored.traffic.wanted) == 1
    assert {done.usage.cached_tokens for done in stored.done.values()} == {16, 17}


def test_where_blocks_are_short_nobody_fetches_and_everybody_ends(make_stored, text) -> None:
    first = make_stored()
    first.ask(text[:50])
    stored = make_stored(first.traffic.store, blocks=15, rows=8)
    numbers = [stored.submit([place, *text[1:40]], 8) for place in range(4)]
    numbers.append(stored.submit(text[:50], 8))
    stored.run()
    assert all(stored.done[number].error is None for number in numbers)
    stored.engine.check_integrity()


def test_what_has_come_stays_until_its_sequence_is_admitted(make_stored, text) -> None:
    """Whoever runs may take idle blocks, and not these."""
    first = make_stored()
    first.ask(text[:26])
    stored = make_stored(first.traffic.store, batch_blocks=1)
    number = stored.submit(text[:26])
    stored.step(4)
    cache = stored.engine.batch.pages.cache
    came = cache.match(stored.keys(text[:26])).block_ids
    assert came
    assert cache.idle_among(came) == 0
    stored.run()
    assert stored.done[number].usage.stored_tokens == 24
    assert cache.idle_among(cache.match(stored.keys(text[:24])).block_ids) == 6


def test_blocks_that_a_step_may_need_are_left_alone(make_stored, text) -> None:
    # 8 blocks for 32 rows of a step, and one for the sequence that it would admit.
    for blocks, fetches in ((16, 0), (17, 1)):
        stored = make_stored(blocks=blocks, rows=32)
        stored.ask(text[:34])
        assert len(stored.traffic.wanted) == fetches
        assert stored.exchange.counts.unasked == ({} if fetches else {"busy": 1})


def test_pieces_that_nobody_wants_any_more_give_their_slots_back(make_stored) -> None:
    """Those that wait for their turn, those that are copied, and a state."""
    traffic = make_stored(slots=40).traffic
    stopped = []
    cache = make_stored().engine.batch.pages.cache
    pages = FakePages(FakeRunner(stream=LateStream()))
    arrivals = Arrivals(
        traffic, pages, StoreCounts(), lambda key: None, lambda *why: stopped.append(why)
    )
    arrivals.start(cache)
    keys = tuple(bytes([place]) * 32 for place in range(20))
    fetch, other = (Fetch(keys=keys, first=0, deadline_s=9.0) for _ in range(2))
    for place in range(20):
        arrivals.take(fetch, Arrived(1, place, tuple(traffic.empty_slots("blocks", 1))))
    arrivals.take(other, Arrived(2, 0, tuple(traffic.empty_slots("state", 1)), is_state=True))
    arrivals.tend(0)
    assert cache.free_blocks == 64 - 16
    arrivals.discard(fetch)
    assert cache.free_blocks == 64
    assert traffic.slots_out == 17
    arrivals.tend(0)
    assert len(arrivals.reserved_slots()) == 1
    arrivals.discard(other)
    assert not arrivals.reserved_slots()
    pages._runner.drain()
    arrivals.tend(0)
    assert not traffic.slots_out
    assert not arrivals.is_busy
    assert (fetch.is_open, other.is_open, stopped) == (False, False, [])


def kept_by_another(make_stored, prompts: list[list[int]]) -> object:
    """A store that has all blocks of some prompts."""
    other = make_stored()
    for prompt in prompts:
        other.ask(prompt)
    return other.traffic.store


def test_what_came_is_not_let_go_while_there_is_room_for_all(make_stored, text) -> None:
    """The first of these run while the last ones still come, in a cache that is just enough."""
    prompts = [[number, *text[: 9 + 4 * number]] for number in range(4)]
    store = kept_by_another(make_stored, prompts)
    stored = make_stored(store, blocks=23, rows=32, batch_blocks=1)
    numbers = [stored.submit(prompt, 2) for prompt in prompts]
    stored.run()
    came = [stored.done[number].usage.stored_tokens for number in numbers]
    assert came == [8, 12, 16, 20]
    assert stored.exchange.counts.fetches == {"done": 4}
    assert stored.engine.batch.preemptions == 0


def test_what_was_let_go_before_it_was_of_use_counts_as_no_room(make_stored, text) -> None:
    """It came whole, and what runs took its blocks: the store is not to blame."""
    store = kept_by_another(make_stored, [text[:18]])
    stored = make_stored(store, blocks=22, rows=8)
    for seed in range(4):
        stored.submit([seed, *text[1:7]], 30, seed=seed)
    waiting = stored.submit(text[:18])
    stored.step(10)
    assert not stored.exchange.counts.fetches["done"]  # it is not known yet of what use it is
    stored.run()
    assert stored.done[waiting].usage.stored_tokens == 0
    assert stored.exchange.counts.fetches["no_room"] == 1
