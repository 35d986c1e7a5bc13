"""The scheduling policy: limits kept, order kept, nobody left behind."""

from dataclasses import replace

import pytest
from deepinfer_core.schedule.policy import decide
from deepinfer_core.schedule.snapshot import Decision, Limits, SequenceView, Share, Snapshot
from hypothesis import given
from hypothesis import strategies as st

BLOCK = 4


def limits(rows: int = 16, sequences: int = 4, blocks: int = 64) -> Limits:
    return Limits(max_rows=rows, max_sequences=sequences, block_tokens=BLOCK, usable_blocks=blocks)


def view(number: int, known: int, computed: int = 0) -> SequenceView:
    return SequenceView(
        sequence_id=number,
        known_tokens=known,
        computed_tokens=computed,
        block_count=-(-computed // BLOCK),
        idle_blocks=-(-computed // BLOCK),
        rank=(0.0, number),
    )


def snapshot(
    running: tuple[SequenceView, ...] = (),
    waiting: tuple[SequenceView, ...] = (),
    bounds: Limits | None = None,
) -> Snapshot:
    bounds = bounds or limits()
    held = sum(item.block_count for item in running)
    return Snapshot(
        limits=bounds,
        running=running,
        waiting=waiting,
        free_blocks=bounds.usable_blocks - held,
        free_slots=bounds.max_sequences - len(running),
    )


def rows(decision: Decision) -> dict[int, int]:
    return {share.sequence_id: share.row_count for share in decision.shares}


def test_nothing_to_do_gives_an_empty_decision() -> None:
    assert decide(snapshot()) == Decision(preempted=(), admitted=(), shares=(), kind="idle")


@pytest.mark.parametrize("length", [1, 15, 16])
def test_a_prompt_within_the_budget_is_fed_whole(length: int) -> None:
    decision = decide(snapshot(waiting=(view(1, length),)))
    blocks = -(-length // BLOCK)
    assert decision.shares == (Share(sequence_id=1, row_count=length, new_blocks=blocks),)
    assert decision.admitted == (1,)


def test_a_prompt_above_the_budget_is_fed_in_chunks() -> None:
    assert rows(decide(snapshot(waiting=(view(1, 17),)))) == {1: 16}
    assert rows(decide(snapshot(running=(view(1, 17, 16),)))) == {1: 1}


def test_decodes_and_a_chunk_share_one_step() -> None:
    decision = decide(snapshot((view(1, 9, 8), view(2, 30, 4)), (view(3, 5),)))
    assert rows(decision) == {1: 1, 2: 15}
    assert not decision.admitted


def test_what_an_older_prompt_leaves_goes_to_the_next() -> None:
    decision = decide(snapshot((view(1, 10, 4),), (view(2, 5), view(3, 50))))
    assert rows(decision) == {1: 6, 2: 5, 3: 5}


def test_a_decode_always_has_its_row_although_an_older_prompt_could_fill_the_step() -> None:
    assert rows(decide(snapshot((view(1, 90, 4), view(2, 9, 8))))) == {1: 15, 2: 1}


def test_no_more_sequences_run_than_allowed() -> None:
    waiting = tuple(view(n, 1) for n in range(1, 7))
    assert decide(snapshot(waiting=waiting)).admitted == (1, 2, 3, 4)


def test_a_full_slot_pool_stops_admission() -> None:
    full = replace(snapshot(waiting=(view(1, 1), view(2, 1))), free_slots=1)
    assert decide(full).admitted == (1,)


def test_nothing_overtakes_the_head_of_the_queue() -> None:
    bounds = limits(blocks=10)
    decision = decide(snapshot((view(1, 24, 23),), (view(2, 20), view(3, 1)), bounds))
    assert not decision.admitted


def test_admission_leaves_room_for_what_running_sequences_need_next() -> None:
    # Sequence 1 holds 2 blocks, full after this step; of the 3 that are free it will need one.
    # That leaves 2, enough for 7 tokens and the next, not for 8 and the next.
    bounds = limits(blocks=5)
    assert decide(snapshot((view(1, 8, 7),), (view(2, 7),), bounds)).admitted == (2,)
    assert not decide(snapshot((view(1, 8, 7),), (view(2, 8),), bounds)).admitted


def test_a_sequence_without_a_block_takes_those_of_the_youngest() -> None:
    bounds = limits(blocks=4)
    decision = decide(snapshot((view(1, 5, 4), view(2, 5, 4), view(3, 8, 7)), (), bounds))
    assert decision.preempted == (3,)
    assert rows(decision) == {1: 1, 2: 1}


def test_the_youngest_skips_a_step_rather_than_lose_its_work() -> None:
    bounds = limits(blocks=4)
    decision = decide(snapshot((view(1, 8, 7), view(2, 9, 8)), (), bounds))
    assert not decision.preempted
    assert rows(decision) == {1: 1}


def test_a_preemption_admits_nobody_in_the_same_step() -> None:
    bounds = limits(blocks=4)
    state = snapshot((view(1, 5, 4), view(2, 13, 12)), (view(3, 1),), bounds)
    decision = decide(state)
    assert decision.preempted == (2,)
    assert not decision.admitted


def test_a_chunk_shrinks_to_the_blocks_that_are_free() -> None:
    bounds = limits(blocks=4)
    assert rows(decide(snapshot((view(1, 4, 3), view(2, 12, 4)), (), bounds))) == {1: 1, 2: 8}


@pytest.mark.parametrize(
    "wrong", [{"max_rows": 0}, {"max_sequences": 0}, {"block_tokens": 0}, {"usable_blocks": 0}]
)
def test_limits_must_be_positive(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        replace(limits(), **wrong)


def test_a_step_must_have_a_row_for_each_running_sequence() -> None:
    with pytest.raises(ValueError, match="3 rows cannot serve 4"):
        limits(rows=3)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    sequences = draw(st.integers(1, 5))
    bounds = limits(
        rows=draw(st.integers(sequences, 40)), sequences=sequences, blocks=draw(st.integers(8, 40))
    )
    longest = 8 * BLOCK
    running: list[SequenceView] = []
    free = bounds.usable_blocks
    for number in range(draw(st.integers(0, sequences))):
        known = draw(st.integers(1, longest - 1))
        one = view(number, known, draw(st.integers(0, known - 1)))
        if one.block_count > free:
            break
        free -= one.block_count
        running.append(one)
    waiting = tuple(
        view(100 + n, known)
        for n, known in enumerate(draw(st.lists(st.integers(1, longest - 1), max_size=6)))
    )
    return snapshot(tuple(running), waiting, bounds)


@given(snapshots())
def test_every_decision_keeps_every_limit(state: Snapshot) -> None:
    decision = decide(state)
    views = {item.sequence_id: item for item in state.running + state.waiting}
    freed = sum(views[number].block_count for number in decision.preempted)
    taken = sum(share.new_blocks for share in decision.shares)
    assert taken <= state.free_blocks + freed
    assert sum(rows(decision).values()) <= state.limits.max_rows
    running = len(state.running) - len(decision.preempted) + len(decision.admitted)
    assert running <= state.limits.max_sequences
    assert len(decision.admitted) <= state.free_slots
    assert not set(decision.preempted) & set(rows(decision))
    for share in decision.shares:
        one = views[share.sequence_id]
        assert 1 <= share.row_count <= one.known_tokens - one.computed_tokens
        held = (one.block_count + share.new_blocks) * BLOCK
        assert one.computed_tokens + share.row_count <= held < one.known_tokens + 2 * BLOCK


@given(snapshots())
def test_the_oldest_sequence_always_proceeds(state: Snapshot) -> None:
    queue = state.running + state.waiting
    if queue:
        assert queue[0].sequence_id in rows(decide(state))


@given(snapshots())
def test_the_same_snapshot_gives_the_same_decision(state: Snapshot) -> None:
    assert decide(state) == decide(state)


@given(snapshots())
def test_order_of_arrival_is_kept(state: Snapshot) -> None:
    decision = decide(state)
    waiting = [item.sequence_id for item in state.waiting]
    running = [item.sequence_id for item in state.running]
    assert list(decision.admitted) == waiting[: len(decision.admitted)]
    assert list(reversed(decision.preempted)) == running[len(running) - len(decision.preempted) :]
