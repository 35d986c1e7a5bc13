"""Faults of the published engine that a fake runner can show, and that this engine does not have.

``docs/published-faults.md`` lists all of them with the tests that stand against each.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.engine.core import Engine, Update
from deepinfer_core.engine.outputs import Completion
from deepinfer_core.engine.request_options import RequestOptions
from deepinfer_core.engine.results import refusal
from deepinfer_core.engine.rows import RowRequest, RowResult
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import DeadlineExceeded, RequestError
from deepinfer_core.testing.fake_runner import FakeRunner

MakeEngine = Callable[..., Engine]
BLOCK = 4
EOS = 1
ROOT = Path(__file__).parents[3]


class Recorder(FakeRunner):
    """Remembers what may not be drawn at each position, by seed."""

    def __init__(self) -> None:
        super().__init__(265, BLOCK)
        self.banned: dict[tuple[int, int], tuple[int, ...]] = {}

    def draw(
        self, rows: tuple[RowRequest, ...], histories: list[tuple[int, ...]]
    ) -> tuple[RowResult, ...]:
        self.banned |= {(row.settings.seed, row.position): row.banned for row in rows}
        return super().draw(rows, histories)


def take(ended: dict[tuple[int, int], Completion], updates: list[Update]) -> None:
    for update in updates:
        done = update.delta.completion
        if done is not None:
            assert (done.index, done.sample) not in ended
            ended[done.index, done.sample] = done


def drain(engine: Engine) -> dict[tuple[int, int], Completion]:
    ended: dict[tuple[int, int], Completion] = {}
    while len(engine.batch):
        take(ended, engine.step())
    assert_rest(engine)
    return ended


def assert_rest(engine: Engine) -> None:
    """Nobody holds anything; what is cached counts as free."""
    engine.check_integrity()
    pages = engine.batch.pages
    assert not len(engine.batch)
    assert pages.cache.free_blocks == engine.batch.limits.usable_blocks
    assert not pages.cache.reserved_slots


def params(**fields: Any) -> SamplingParams:
    return SamplingParams(**{"seed": 0, "max_tokens": 3, **fields})


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_w1_an_abort_between_two_chunks_of_a_prompt_leaves_nothing(
    make_engine: MakeEngine, asynchronous: bool, steps: int
) -> None:
    engine = make_engine(rows=4, asynchronous=asynchronous)
    number = engine.submit(0, list(range(10, 30)), params())
    for _ in range(steps):
        engine.step()
    [sequence] = engine.batch
    assert 0 < sequence.computed < 20
    assert sequence.block_ids
    assert engine.abort(number) is not None
    assert_rest(engine)
    while engine.step():
        pass
    assert_rest(engine)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_w1_samples_that_wait_for_a_computed_prompt_leave_nothing(
    make_engine: MakeEngine, order: tuple[int, ...], steps: int
) -> None:
    engine = make_engine(sequences=2)
    prompt, numbers = list(range(10, 20)), []
    for sample in range(3):
        follows = numbers[0] if numbers else None
        numbers.append(engine.submit(0, prompt, params(n=3), sample=sample, follows=follows))
    for _ in range(steps):
        engine.step()
    ended = [engine.abort(numbers[place]) for place in order]
    assert any(ended)
    assert_rest(engine)


def test_w2_w17_an_abort_finds_a_request_in_every_state_and_answers(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine(sequences=1)
    running = engine.submit(0, [10] * 5, params(n=2))
    follower = engine.submit(0, [10] * 5, params(n=2), sample=1, follows=running)
    waiting = engine.submit(1, [11] * 5, params())
    engine.step()
    runner = engine.runner
    assert isinstance(runner, FakeRunner)
    for number in (follower, waiting, running):
        update = engine.abort(number)
        assert update is not None
        assert update.delta.completion is not None
        assert update.delta.completion.finish_reason == "abort"
        assert engine.abort(number) is None
    assert_rest(engine)
    assert {step.sequence_id for plan in runner.plans for step in plan.sequences} == {running}


def test_w4_w16_a_refused_request_has_a_reason_and_neither_text_nor_tokens_nor_scores() -> None:
    error = RequestError("the prompt is empty", hint="give at least one token")
    done = refusal(3, 7, error, load_s=0.0)
    assert (done.index, done.finish_reason, done.error) == (3, "error", error)
    assert (done.text, done.token_ids, done.usage.completion_tokens) == ("", (), 0)
    assert (done.logprobs, done.prompt_logprobs) == (None, None)


def test_w4_w16_a_request_that_ends_before_its_first_token_has_no_made_up_scores(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine(rows=4)
    number = engine.submit(0, [10] * 9, params(logprobs=1))
    engine.step()
    update = engine.abort(number)
    assert update is not None
    done = update.delta.completion
    assert done is not None
    assert (done.text, done.token_ids, done.logprobs) == ("", (), ())
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (9, 0)


def test_w9_what_may_not_be_drawn_follows_the_output_through_a_preemption(
    make_engine: MakeEngine,
) -> None:
    found = []
    for blocks in (64, 6):
        runner = Recorder()
        engine = make_engine(runner=runner, blocks=blocks, eos_ids=frozenset({EOS}))
        for index in range(3):
            fields = {"seed": index, "max_tokens": 12, "first_n_token_no_eos": 9}
            engine.submit(index, [10 + index] * 3, SamplingParams(ignore_eos=True, **fields))
        drain(engine)
        assert (engine.batch.preemptions > 0) == (blocks == 6)
        found.append(runner.banned)
    assert found[0] == found[1]
    assert {at for (_, at), banned in found[1].items() if EOS in banned} == set(range(3, 12))


def test_w11_any_number_of_requests_may_end_in_one_step(make_engine: MakeEngine) -> None:
    count, now_s = 10_001, 0.0
    engine = make_engine()
    engine.clock_s = lambda: now_s
    for index in range(count):
        engine.submit(index, [10], params(), options=RequestOptions(timeout_s=1.0))
    now_s = 2.0
    ended: dict[tuple[int, int], Completion] = {}
    take(ended, engine.step())
    assert len(ended) == count
    assert all(isinstance(done.error, DeadlineExceeded) for done in ended.values())
    assert_rest(engine)


def test_w14_the_last_in_rank_gives_way_and_not_the_one_with_the_longest_output(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine(blocks=5, longest=20)
    urgent = RequestOptions(priority=1)
    engine.priority_boost_s = 10.0
    long = engine.submit(0, [10] * 3, params(max_tokens=14), options=urgent)
    for _ in range(6):
        engine.step()
    short = engine.submit(1, [11] * 3, params(max_tokens=9))
    preempted: dict[int, int] = {}
    while len(engine.batch):
        for sequence in engine.batch:
            preempted[sequence.sequence_id] = sequence.preemptions
        engine.step()
    assert engine.batch.preemptions > 0
    assert preempted[long] == 0 < preempted[short]


def test_w18_no_token_comes_twice_through_a_preemption(make_engine: MakeEngine) -> None:
    def run(blocks: int) -> tuple[int, dict[int, tuple[int, ...]], dict[int, tuple[int, ...]]]:
        engine = make_engine(blocks=blocks)
        for index in range(3):
            engine.submit(index, [10 + index] * 3, params(seed=index, max_tokens=12))
        joined: dict[int, tuple[int, ...]] = defaultdict(tuple)
        ended = {}
        while len(engine.batch):
            for update in engine.step():
                joined[update.delta.index] += update.delta.token_ids
                if update.delta.completion is not None:
                    ended[update.delta.index] = update.delta.completion.token_ids
        return engine.batch.preemptions, dict(joined), ended

    preemptions, joined, ended = run(6)
    assert preemptions > 0
    assert joined == ended == run(64)[2]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", math.nan),
        ("temperature", True),
        ("max_tokens", True),
        ("max_tokens", 0),
        ("seed", -1),
        ("seed", "7"),
        ("seed", 1.5),
        ("top_p", math.nan),
    ],
)
def test_w23_what_slipped_through_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(RequestError, match=name) as caught:
        SamplingParams(**{name: value})
    assert caught.value.message
    assert caught.value.hint


def test_w30_requests_that_look_alike_are_told_apart(make_engine: MakeEngine) -> None:
    engine = make_engine()
    first, second = (engine.submit(0, [10], params(seed=5)) for _ in range(2))
    assert first != second
    engine.step()
    update = engine.abort(first)
    assert update is not None
    assert update.sequence_id == first
    [done] = drain(engine).values()
    assert (done.finish_reason, len(done.token_ids)) == ("length", 3)


def test_w51_a_prompt_met_again_is_counted_as_cached(make_engine: MakeEngine) -> None:
    engine = make_engine()
    found = []
    for _ in range(2):
        engine.submit(0, list(range(10, 20)), params())
        [done] = drain(engine).values()
        found.append((done.usage.cached_tokens, done.token_ids))
    assert [cached for cached, _ in found] == [0, 8]
    assert found[0][1] == found[1][1]


def test_w53_the_urgent_go_first_and_the_late_end_with_their_reason(
    make_engine: MakeEngine,
) -> None:
    now_s = 0.0
    engine = make_engine(sequences=1)
    engine.clock_s, engine.priority_boost_s = lambda: now_s, 10.0
    runner = engine.runner
    assert isinstance(runner, FakeRunner)
    plain = engine.submit(0, [10], params())
    urgent = engine.submit(1, [11], params(), options=RequestOptions(priority=1))
    late = engine.submit(2, [12], params(), options=RequestOptions(timeout_s=0.5))
    now_s = 1.0
    ended = drain(engine)
    assert isinstance(ended[2, 0].error, DeadlineExceeded)
    order = list(dict.fromkeys(s.sequence_id for plan in runner.plans for s in plan.sequences))
    assert order == [urgent, plain]
    assert late not in order


def test_w60_a_prompt_waits_for_no_decodes_and_meets_them_in_a_step(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()
    runner = engine.runner
    assert isinstance(runner, FakeRunner)
    engine.submit(0, [10, 11], params(max_tokens=8))
    engine.step()
    assert [len(step.token_ids) for step in runner.plans[0].sequences] == [2]
    engine.step()
    engine.submit(1, [12, 13, 14], params())
    engine.step()
    assert [len(step.token_ids) for step in runner.plans[-1].sequences] == [1, 3]


def test_w61_who_is_not_ready_holds_up_nobody(make_engine: MakeEngine) -> None:
    engine = make_engine(sequences=3)
    first = engine.submit(0, [10] * 12, params(n=2))
    follower = engine.submit(0, [10] * 12, params(n=2), sample=1, follows=first)
    other = engine.submit(1, [11], params())
    engine.step()
    runs = {item.sequence_id for item in engine.batch if item.state_slot is not None}
    assert runs == {first, other}
    assert follower not in runs
    assert len(drain(engine)) == 3


def test_w61_what_never_fits_is_refused_and_holds_up_nobody(make_engine: MakeEngine) -> None:
    engine = make_engine(longest=16)
    with pytest.raises(RequestError, match="the engine holds 16"):
        engine.submit(0, [10] * 16, params())
    engine.submit(1, [10] * 15, params())
    assert list(drain(engine)) == [(1, 0)]


def test_w62_a_prompt_takes_the_blocks_of_its_rows_only(make_engine: MakeEngine) -> None:
    engine = make_engine(rows=8, policy=None)
    engine.submit(0, [10] * 40, params())
    engine.step()
    [sequence] = engine.batch
    assert (sequence.computed, len(sequence.block_ids)) == (8, 2)


def test_w62_the_last_free_block_is_used(make_engine: MakeEngine) -> None:
    engine = make_engine(blocks=11, longest=40, asynchronous=False)
    engine.submit(0, [10] * 38, params(max_tokens=2))
    [sequence] = engine.batch
    while sequence.computed < 37:
        engine.step()
    assert engine.batch.pages.cache.free_blocks == 1
    engine.submit(1, [11] * 2, params(max_tokens=1))
    assert 1 in {update.delta.index for update in engine.step()}
    assert engine.batch.preemptions == 0


def test_every_test_that_the_list_of_faults_names_exists() -> None:
    listed = re.findall(r"`(test_\w+)`", (ROOT / "docs/published-faults.md").read_text())
    sources = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("deepinfer_core/src/**/contracts/*.py")]
    written = {
        name
        for file in sources
        for name in re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8"))
    }
    assert len(listed) > 40
    assert sorted(set(listed) - written) == []
