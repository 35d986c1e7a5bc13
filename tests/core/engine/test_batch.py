"""The queues: blocks and slots come back, whatever happens, and everybody ends."""

import zlib

import pytest
from deepinfer_core.engine.admission import Rules, admit
from deepinfer_core.engine.batch import Batch
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.outputs import TokenLogprob
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.engine.text import TextStream
from deepinfer_core.schedule.snapshot import Limits
from deepinfer_core.testing.fakes import FakeRunner, fake_token
from hypothesis import given, settings
from hypothesis import strategies as st

BLOCK = 4
RULES = Rules(vocabulary=1000, max_model_tokens=32)


def sequence(number: int, length: int) -> Sequence:
    request = admit(RULES, 0, range(length), SamplingParams(), 0.0, int)
    return Sequence(
        sequence_id=number, request=request, tokens=list(range(length)), text=TextStream()
    )


def small_batch(rows: int = 8, sequences: int = 2, blocks: int = 8) -> Batch:
    limits = Limits(
        max_rows=rows, max_sequences=sequences, block_tokens=BLOCK, usable_blocks=blocks
    )
    return Batch(limits, sequences + 1)


def test_an_empty_batch_has_an_empty_plan() -> None:
    assert small_batch().next_plan().sequences == ()


def test_the_plan_holds_rows_history_blocks_and_slot() -> None:
    batch = small_batch()
    one = sequence(1, 11)
    batch.add(one)
    first = batch.next_plan().sequences[0]
    assert (first.start, first.token_ids) == (0, tuple(range(8)))
    assert (first.history, first.wants_token) == ((-1, -1, -1), False)
    one.computed = 8
    second = batch.next_plan().sequences[0]
    assert (second.start, second.token_ids) == (8, (8, 9, 10))
    assert (second.history, second.wants_token) == ((7, 6, 5), True)
    assert second.block_ids[:2] == first.block_ids
    assert len(second.block_ids) == 3
    assert second.state_slot == first.state_slot != 0


@pytest.mark.parametrize("start", [0, 1, 2, 3, 4])
def test_history_is_missing_before_the_first_token(start: int) -> None:
    one = sequence(1, 8)
    one.computed, one.state_slot = start, 1
    assert one.step(1).history == tuple(start - i if start >= i else -1 for i in (1, 2, 3))


def test_scores_are_wanted_once_and_for_prompt_tokens_only() -> None:
    request = admit(RULES, 0, range(4), SamplingParams(prompt_logprobs=True), 0.0, int)
    one = Sequence(
        sequence_id=1, request=request, tokens=[0, 1, 2, 3, 9], text=TextStream(), state_slot=1
    )
    assert one.step(2).wants_scores
    one.prompt_logprobs |= dict.fromkeys(
        (1, 2), TokenLogprob(token_id=0, logprob=0.0, processed_logprob=0.0)
    )
    assert not one.step(2).wants_scores
    assert one.step(3).wants_scores
    one.computed = 3
    assert not one.step(2).wants_scores


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_removed_sequence_leaves_nothing_behind_in_any_state(steps: int) -> None:
    batch = small_batch()
    one = sequence(1, 12)
    batch.add(one)
    for _ in range(steps):
        plan = batch.next_plan()
        one.computed += len(plan.sequences[0].token_ids)
    batch.remove(one)
    batch.remove(one)
    assert len(batch) == 0
    batch.check_integrity()


def test_a_preempted_sequence_waits_in_front_with_nothing() -> None:
    batch = small_batch(rows=16, sequences=2, blocks=4)
    old, young, late = sequence(1, 7), sequence(2, 7), sequence(3, 1)
    for one in (old, young, late):
        batch.add(one)
    batch.next_plan()
    for one in (old, young):
        one.computed = 7
        one.tokens += [0]
    batch.next_plan()
    for one in (old, young):
        one.computed = 8
        one.tokens += [0]
    plan = batch.next_plan()
    assert [step.sequence_id for step in plan.sequences] == [1]
    assert (young.computed, young.block_ids, young.state_slot) == (0, [], None)
    assert [one.sequence_id for one in batch] == [1, 2, 3]
    assert batch.preemptions == 1
    batch.check_integrity()


def test_clearing_forgets_everything() -> None:
    batch = small_batch()
    batch.add(sequence(1, 12))
    batch.next_plan()
    batch.clear()
    assert len(batch) == 0
    batch.check_integrity()


WORK = st.lists(
    st.tuples(st.integers(1, 31), st.integers(1, 31), st.integers(0, 12), st.booleans()),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(work=WORK, rows=st.integers(3, 20), sequences=st.integers(1, 3), blocks=st.integers(8, 14))
def test_every_request_ends_as_it_would_alone_under_any_load(
    work: list[tuple[int, int, int, bool]], rows: int, sequences: int, blocks: int
) -> None:
    """Arrivals, aborts and preemptions in any order: nothing leaks, nothing changes a token."""
    batch = small_batch(rows, sequences, blocks)
    engine = Engine(FakeRunner(1000, BLOCK), batch, RULES)
    late = dict(enumerate(work))
    numbers: dict[int, int] = {}
    ended = {}
    for step in range(2000):
        for index, (length, most, arrival, _) in list(late.items()):
            if arrival <= step:
                params = SamplingParams(max_tokens=most, seed=index)
                numbers[index] = engine.submit(index, prompt(index, length), params)
                del late[index]
        for index, number in numbers.items():
            if work[index][3] and index not in ended and step == work[index][2] + 3:
                update = engine.abort(number)
                assert update is not None
                ended[index] = update.delta.completion
        for update in engine.step():
            if update.delta.completion is not None:
                ended[update.delta.index] = update.delta.completion
        batch.check_integrity()
        if not late and not len(batch):
            break
    assert sorted(ended) == list(range(len(work)))
    for index, completion in ended.items():
        assert completion is not None
        length, most, _, _ = work[index]
        wanted = alone(index, length, min(most, 32 - length))
        if completion.finish_reason == "abort":
            assert completion.token_ids == wanted[: len(completion.token_ids)]
        else:
            assert (completion.finish_reason, completion.token_ids) == ("length", wanted)


def prompt(index: int, length: int) -> list[int]:
    return [zlib.crc32(f"{index} {place}".encode()) % 1000 for place in range(length)]


def alone(index: int, length: int, most: int) -> tuple[int, ...]:
    tokens = prompt(index, length)
    for _ in range(most):
        tokens.append(fake_token(index, len(tokens), tuple(tokens), 1000))
    return tuple(tokens[length:])
