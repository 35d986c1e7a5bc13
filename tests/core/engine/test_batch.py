"""The queues: blocks and slots come back, whatever happens, and rows are fed in order."""

import pytest
from deepinfer_core.cache.keys import KeyChain
from deepinfer_core.engine.admission import Rules, admit
from deepinfer_core.engine.batch import Batch
from deepinfer_core.engine.launch import Launch
from deepinfer_core.engine.outputs import TokenLogprob
from deepinfer_core.engine.pages import PageCounts
from deepinfer_core.engine.prefix_reuse import ReusePolicy
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.engine.text import TextStream
from deepinfer_core.schedule.plan import UNKNOWN_TOKEN, Copy, SequenceStep
from deepinfer_core.schedule.snapshot import Limits

BLOCK = 4
RULES = Rules(vocabulary=1000, max_model_tokens=64)
POLICY = ReusePolicy(block_tokens=BLOCK, window_tokens=BLOCK, layers=2)


def sequence(
    number: int,
    tokens: int | list[int],
    rank: float = 0.0,
    chain: KeyChain | None = None,
    **fields: object,
) -> Sequence:
    ids = list(range(tokens)) if isinstance(tokens, int) else tokens
    params = SamplingParams(**fields)  # type: ignore[arg-type]
    request = admit(RULES, 0, ids, params, 0.0, int)
    return Sequence(
        sequence_id=number,
        request=request,
        rank=(rank, number),
        tokens=ids,
        text=TextStream(),
        settings=request.settings(),
        chain=chain,
    )


def small_batch(
    rows: int = 8, sequences: int = 2, blocks: int = 16, snapshots: int = 4, is_sharing: bool = True
) -> Batch:
    limits = Limits(
        max_rows=rows, max_sequences=sequences, block_tokens=BLOCK, usable_blocks=blocks
    )
    slots = 1 + sequences + snapshots
    counts = PageCounts(blocks=blocks + 1, slots=slots, snapshots=snapshots)
    return Batch(limits, counts, POLICY if is_sharing else None)


def launched(batch: Batch) -> Launch:
    launch = batch.launch()
    assert launch is not None
    batch.check_integrity(launch.saved)
    return launch


def settle(batch: Batch, launch: Launch, token: int = 0) -> None:
    """Take in what a step gave: its rows are computed, and it drew the same token everywhere."""
    for step, one in zip(launch.plan.sequences, launch.sequences, strict=True):
        one.committed = step.start + len(step.token_ids)
        batch.pages.publish(one)
        if step.wants_token:
            one.tokens.append(token)
            one.open_tokens -= 1
    for saved in launch.saved:
        batch.pages.keep(saved, succeeded=True)


def run(batch: Batch, one: Sequence, steps: int = 1) -> list[SequenceStep]:
    """Let a sequence run for some steps; its part of each."""
    fed = []
    for _ in range(steps):
        launch = launched(batch)
        fed.append(launch.plan.sequences[launch.sequences.index(one)])
        settle(batch, launch)
        batch.check_integrity()
    return fed


def test_an_empty_batch_launches_nothing() -> None:
    assert small_batch().launch() is None


def test_the_plan_holds_rows_history_blocks_and_slot() -> None:
    batch = small_batch()
    one = sequence(1, 11)
    batch.add(one)
    first, second = run(batch, one, 2)
    assert (first.start, first.token_ids) == (0, tuple(range(8)))
    assert (first.history, first.wants_token) == ((-1, -1, -1), False)
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
    def scored(start: int, rows: int) -> int:
        one.computed = start
        return one.step(rows).scored_rows

    one = sequence(1, 4, prompt_logprobs=True)
    one.tokens.append(9)
    one.state_slot = 1
    assert scored(0, 2) == 2
    one.prompt_logprobs |= dict.fromkeys(
        (1, 2), TokenLogprob(token_id=0, logprob=0.0, processed_logprob=0.0)
    )
    assert scored(0, 2) == 0
    assert scored(0, 3) == 3
    assert scored(0, 5) == 3
    assert scored(3, 2) == 0


def test_a_token_under_way_is_fed_open_and_no_sooner_than_it_is_drawn() -> None:
    batch = small_batch()
    one = sequence(1, 3, max_tokens=9)
    batch.add(one)
    first = launched(batch)
    one.drawn_index = 5
    second = launched(batch)
    [step] = second.plan.sequences
    assert (step.start, step.token_ids, step.drawn_index) == (3, (UNKNOWN_TOKEN,), 5)
    assert step.history == (2, 1, 0)
    settle(batch, first, token=7)
    settle(batch, second, token=8)
    assert one.tokens == [0, 1, 2, 7, 8]


def test_a_sequence_whose_last_token_is_under_way_feeds_nothing_and_keeps_what_it_holds() -> None:
    batch = small_batch()
    one = sequence(1, 3, max_tokens=1)
    batch.add(one)
    launched(batch)
    assert batch.launch() is None
    assert one.block_ids


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_removed_sequence_leaves_nothing_behind_in_any_state(steps: int) -> None:
    batch = small_batch()
    one = sequence(1, 12)
    batch.add(one)
    run(batch, one, steps)
    batch.remove(one)
    assert (len(batch), one.is_gone, one.block_ids, one.state_slot) == (0, True, (), None)
    batch.check_integrity()


def test_a_preempted_sequence_waits_with_nothing() -> None:
    batch = small_batch(rows=32, sequences=2, blocks=4)
    old = sequence(1, [*range(7)], max_tokens=50)
    young = sequence(2, [*range(20, 27)], max_tokens=50)
    for one in (old, young):
        batch.add(one)
    run(batch, old, 2)
    [step] = launched(batch).plan.sequences
    assert step.sequence_id == 1
    assert (young.computed, young.block_ids, young.state_slot) == (0, (), None)
    assert (young.preemptions, batch.preemptions) == (1, 1)
    assert [one.sequence_id for one in batch] == [1, 2]


def test_what_an_earlier_stay_computed_is_not_taken_for_the_present_one_s() -> None:
    batch = small_batch(rows=32, sequences=2, blocks=4)
    old, young = (sequence(number, 7, max_tokens=50) for number in (1, 2))
    for one in (old, young):
        batch.add(one)
    first = launched(batch)
    settle(batch, first)
    run(batch, old, 2)
    assert young.state_slot is None
    batch.remove(old)
    launched(batch)
    assert young.admissions == 2
    batch.commit(first, 5.0)
    assert (young.committed, young.published, young.prefilled_s) == (0, 0, None)


def test_a_step_is_committed_without_its_plan() -> None:
    batch = small_batch(rows=6)
    one = shared(1, 9)
    batch.add(one)
    for end, prefilled_s in ((6, None), (8, None), (9, 3.0)):
        launch = launched(batch)
        launch.forget_plan()
        assert not launch.plan.sequences
        batch.commit(launch, 3.0)
        assert (one.committed, one.published, one.prefilled_s) == (end, end // BLOCK, prefilled_s)
        batch.check_integrity()


def test_the_first_in_rank_runs_first_whenever_it_came() -> None:
    batch = small_batch(sequences=1)
    for number, rank in ((1, 5.0), (2, 1.0), (3, 3.0)):
        batch.add(sequence(number, 2, rank))
    assert [one.sequence_id for one in batch] == [2, 3, 1]
    assert [step.sequence_id for step in launched(batch).plan.sequences] == [2]


def test_clearing_forgets_everything() -> None:
    batch = small_batch()
    batch.add(sequence(1, 12))
    launched(batch)
    batch.clear()
    assert len(batch) == 0
    assert batch.pages.cache.free_blocks == 16
    batch.check_integrity()


def shared(number: int, tokens: int | list[int], salt: str = "", **fields: object) -> Sequence:
    """A sequence that reuses what is cached."""
    return sequence(number, tokens, chain=POLICY.chain(salt), **fields)


def after(tokens: int | list[int]) -> Batch:
    """A batch that has computed a prompt and forgotten the sequence."""
    batch = small_batch(rows=64, blocks=32)
    first = shared(1, tokens)
    batch.add(first)
    run(batch, first, 2)  # up to the last boundary, and the rest
    batch.remove(first)
    return batch


def test_a_prompt_is_cut_where_its_state_serves_others() -> None:
    batch = small_batch(rows=64, blocks=32)
    first = shared(1, 11)
    batch.add(first)
    assert [(step.start, len(step.token_ids)) for step in run(batch, first, 2)] == [(0, 8), (8, 3)]


def test_a_prompt_that_was_computed_is_not_computed_again() -> None:
    batch, second = after(11), shared(2, [*range(9), 50, 51, 52])
    batch.add(second)
    launch = launched(batch)
    [step] = launch.plan.sequences
    assert (step.start, step.token_ids, step.cached_end) == (8, (8, 50, 51, 52), 8)
    assert (second.cached_tokens, second.replayed_tokens) == (8, 0)
    assert [copy.destination for copy in launch.plan.restored_slots] == [step.state_slot]


def test_a_whole_prompt_in_the_cache_still_feeds_a_row() -> None:
    batch = after(8)
    batch.add(shared(2, 8))
    [step] = launched(batch).plan.sequences
    assert (step.start, step.token_ids) == (4, (4, 5, 6, 7))


@pytest.mark.parametrize(
    "one",
    [
        shared(2, [9, *range(1, 11)]),
        shared(3, 11, salt="theirs"),
        shared(4, 11, prompt_logprobs=True),
        sequence(5, 11),
    ],
    ids=["other tokens", "another salt", "to be scored", "sharing nothing"],
)
def test_nothing_is_reused_by(one: Sequence) -> None:
    batch = after(11)
    batch.add(one)
    launched(batch)
    assert one.cached_tokens == 0


def test_without_a_snapshot_enough_is_fed_again_and_a_snapshot_is_left() -> None:
    batch = after(23)
    second, third = shared(2, [*range(17), *range(70, 77)]), shared(3, 18)
    batch.add(second)
    step = run(batch, second)[0]
    # Two windows of 4 keys need 2 * 3 earlier rows: from 16 back to 10, in whole blocks to 8.
    assert (step.start, step.valid_start, step.cached_end, len(step.token_ids)) == (8, 8, 16, 8)
    assert (second.cached_tokens, second.replayed_tokens) == (16, 8)
    batch.add(third)
    launched(batch)
    assert (third.cached_tokens, third.replayed_tokens) == (16, 0)


def test_what_an_answer_leaves_serves_the_next_turn() -> None:
    batch = small_batch(rows=64, blocks=32)
    first = shared(1, 6, max_tokens=20)
    batch.add(first)
    run(batch, first, 12)
    history = list(first.tokens)
    batch.remove(first)
    second = shared(2, [*history, 70, 71])
    batch.add(second)
    launched(batch)
    reused = (len(history) - 1) // BLOCK * BLOCK  # the last token's row was never computed
    assert (second.cached_tokens, second.replayed_tokens) == (reused, 0)


def fork_batch(samples: int, length: int, **sizes: int) -> tuple[Batch, list[Sequence]]:
    batch = small_batch(rows=32, sequences=4, blocks=32, is_sharing=False, **sizes)
    members = [sequence(number, length, max_tokens=9) for number in range(1, samples + 1)]
    for one in members:
        batch.add(one, members[0] if one is not members[0] else None)
    return batch, members


@pytest.mark.parametrize("length", [2, 4, 5, 6, 9])
def test_samples_of_one_prompt_compute_it_once(length: int) -> None:
    batch, members = fork_batch(3, length)
    assert len(run(batch, members[0])[0].token_ids) == length - 1
    launch = launched(batch)
    assert [(step.start, len(step.token_ids)) for step in launch.plan.sequences] == [
        (length - 1, 1)
    ] * 3
    whole = (length - 1) // BLOCK
    blocks = [step.block_ids for step in launch.plan.sequences]
    assert len({ids[:whole] for ids in blocks}) == 1
    assert len({ids[whole:] for ids in blocks}) == 3
    cloned = [Copy(blocks[0][whole], ids[whole]) for ids in blocks[1:]]
    assert list(launch.plan.block_copies) == (cloned if (length - 1) % BLOCK else [])
    assert len(launch.plan.restored_slots) == 2
    settle(batch, launch)
    for one in members:
        batch.remove(one)
    batch.check_integrity()
    assert batch.pages.cache.free_blocks == 32


@pytest.mark.parametrize("at", [0, 1])
def test_samples_go_their_own_way_when_the_first_one_ends_early(at: int) -> None:
    batch, members = fork_batch(3, 9)
    if at:
        run(batch, members[0])
    batch.remove(members[0])
    launch = launched(batch)
    assert {step.sequence_id for step in launch.plan.sequences} == {2, 3}
    assert {step.start for step in launch.plan.sequences} == {8 if at else 0}


def test_samples_that_never_start_leave_nothing() -> None:
    batch, members = fork_batch(3, 9)
    run(batch, members[0])
    for one in reversed(members):
        batch.remove(one)
    batch.check_integrity()
    assert batch.pages.cache.free_blocks == 32


def test_without_a_slot_for_a_copy_samples_compute_the_prompt_each() -> None:
    batch, members = fork_batch(2, 9, snapshots=0)
    assert [len(step.token_ids) for step in launched(batch).plan.sequences] == [9, 9]
    assert not members[0].fork_due


def test_what_is_kept_for_samples_goes_before_anybody_is_preempted() -> None:
    batch = small_batch(rows=16, sequences=2, blocks=13)
    leader = sequence(1, 8)
    others = [sequence(number, 7, max_tokens=50) for number in (2, 3)]
    followers = [sequence(number, 8, rank=9.0) for number in (4, 5)]
    batch.add(leader)
    for one in followers:
        batch.add(one, leader)
    batch.add(others[0])
    run(batch, leader)
    batch.remove(leader)
    batch.add(others[1])
    run(batch, others[1], 2)
    # Of 13 blocks the fork has 2; of the two that run each takes one for every 4 tokens.
    while batch.pages.cache.free_blocks > 1:
        assert leader.fork is not None
        run(batch, others[1])
    run(batch, others[1], 4)
    assert leader.fork is None
    assert batch.preemptions == 0
