"""The scheduling policy: limits kept, order kept, nobody left behind."""

from dataclasses import replace
from typing import Any

import pytest
from deepinfer_core.schedule.policy import decide
from deepinfer_core.schedule.snapshot import Decision, Limits, SequenceView, Share, Snapshot

BLOCK = 4


def limits(
    rows: int = 16, sequences: int = 4, blocks: int = 64, mixes: bool = True, rows_each: int = 1
) -> Limits:
    return Limits(
        max_rows=rows,
        max_sequences=sequences,
        block_tokens=BLOCK,
        usable_blocks=blocks,
        mixes=mixes,
        rows_each=rows_each,
    )


def view(number: int, known: int, computed: int = 0, **rest: Any) -> SequenceView:
    """A sequence whose blocks nobody shares, unless ``rest`` says otherwise."""
    blocks = -(-computed // BLOCK)
    rest = {"block_count": blocks, "idle_blocks": blocks, "rank": (0.0, number)} | rest
    return SequenceView(number, known, computed, **rest)


DECODING, PROMPT = view(1, 9, 8), view(2, 30, 4)


def snapshot(
    running: tuple[SequenceView, ...] = (),
    waiting: tuple[SequenceView, ...] = (),
    bounds: Limits | None = None,
    **rest: Any,
) -> Snapshot:
    bounds = bounds or limits()
    held = sum(item.block_count for item in running)
    return Snapshot(
        limits=bounds,
        running=running,
        waiting=waiting,
        free_slots=bounds.max_sequences - len(running),
        **({"free_blocks": bounds.usable_blocks - held} | rest),
    )


def rows(decision: Decision) -> dict[int, int]:
    return {share.sequence_id: share.row_count for share in decision.shares}


def test_nothing_to_do_gives_an_empty_decision() -> None:
    assert decide(snapshot()) == ((), (), (), "idle")


@pytest.mark.parametrize("length", [1, 15, 16])
def test_a_prompt_within_the_budget_is_fed_whole(length: int) -> None:
    decision = decide(snapshot(waiting=(view(1, length),)))
    assert decision.shares == (Share(1, length, -(-length // BLOCK)),)
    assert decision.admitted == (1,)


def test_a_prompt_above_the_budget_is_fed_in_chunks() -> None:
    assert rows(decide(snapshot(waiting=(view(1, 17),)))) == {1: 16}
    assert rows(decide(snapshot(running=(view(1, 17, 16),)))) == {1: 1}


def test_decodes_and_a_chunk_share_one_step() -> None:
    decision = decide(snapshot((view(1, 9, 8), view(2, 30, 4)), (view(3, 5),)))
    assert rows(decision) == {1: 1, 2: 15}
    assert not decision.admitted


def test_what_an_earlier_prompt_leaves_goes_to_the_next() -> None:
    decision = decide(snapshot((view(1, 10, 4),), (view(2, 5), view(3, 50))))
    assert rows(decision) == {1: 6, 2: 5, 3: 5}


def test_a_decode_always_has_its_row_although_an_earlier_prompt_could_fill_the_step() -> None:
    assert rows(decide(snapshot((view(1, 90, 4), view(2, 9, 8))))) == {1: 15, 2: 1}


def test_no_more_sequences_run_than_allowed() -> None:
    waiting = tuple(view(n, 1) for n in range(1, 7))
    assert decide(snapshot(waiting=waiting)).admitted == (1, 2, 3, 4)


def test_more_free_slots_than_sequences_may_run_change_nothing() -> None:
    waiting = tuple(view(n, 1) for n in range(1, 7))
    many = replace(snapshot((DECODING,), waiting), free_slots=9)
    assert decide(many).admitted == (1, 2, 3)


def test_a_full_slot_pool_stops_admission() -> None:
    full = replace(snapshot(waiting=(view(1, 1), view(2, 1))), free_slots=1)
    assert decide(full).admitted == (1,)


def test_nothing_that_is_ready_overtakes_the_head_of_the_queue() -> None:
    bounds = limits(blocks=10)
    decision = decide(snapshot((view(1, 24, 23),), (view(2, 20), view(3, 1)), bounds))
    assert not decision.admitted


def test_a_lone_sequence_is_let_in_even_if_its_next_token_would_need_one_more_block() -> None:
    bounds = limits(blocks=2)
    assert rows(decide(snapshot((), (view(1, 8),), bounds))) == {1: 8}
    beside = snapshot((view(2, 3, 2),), (view(1, 8),), limits(blocks=3))
    assert not decide(beside).admitted


def test_one_that_is_not_ready_is_passed_over_and_holds_up_nobody() -> None:
    waiting = (view(1, 5, is_ready=False), view(2, 5), view(3, 1, is_ready=False), view(4, 5))
    assert decide(snapshot(waiting=waiting)).admitted == (2, 4)


def test_admission_leaves_room_for_what_running_sequences_need_next() -> None:
    # Sequence 1 holds 2 blocks, full after this step; of the 3 that are free it will need one.
    # That leaves 2, enough for 7 tokens and the next, not for 8 and the next.
    bounds = limits(blocks=5)
    assert decide(snapshot((view(1, 8, 7),), (view(2, 7),), bounds)).admitted == (2,)
    assert not decide(snapshot((view(1, 8, 7),), (view(2, 8),), bounds)).admitted


def test_cached_blocks_that_others_hold_need_no_free_block() -> None:
    # 9 tokens and the next need 3 blocks; two are cached and held by sequence 1.
    bounds = limits(blocks=5)
    cached = view(2, 9, 8, idle_blocks=0)
    running = (view(1, 11, 10, idle_blocks=1),)
    decision = decide(snapshot(running, (cached,), bounds, free_blocks=1))
    assert decision.admitted == (2,)
    assert decision.shares == (Share(1, 1, 0), Share(2, 1, 1))
    assert not decide(snapshot(running, (cached,), bounds, free_blocks=0)).admitted


def test_cached_blocks_that_nobody_holds_are_free_blocks_until_they_are_taken_over() -> None:
    running = (view(1, 3, 2),)
    cached = view(2, 9, 8)
    assert decide(snapshot(running, (cached,), free_blocks=3)).admitted == (2,)
    assert not decide(snapshot(running, (cached,), free_blocks=2)).admitted


def test_an_idle_block_that_two_would_take_over_is_counted_for_both() -> None:
    running, both = (view(1, 3, 2),), (view(2, 9, 8), view(3, 9, 8))
    assert decide(snapshot(running, both, free_blocks=5)).admitted == (2,)
    assert decide(snapshot(running, both, free_blocks=6)).admitted == (2, 3)


def test_a_resumed_sequence_goes_on_where_its_cached_blocks_allow() -> None:
    # The last window before the end of the cached prefix is fed again, into blocks it has.
    replayed = view(1, 14, 5, block_count=3, idle_blocks=3)
    assert decide(snapshot(waiting=(replayed,))).shares == (Share(1, 9, 1),)


@pytest.mark.parametrize(("stop_at", "expected"), [(5, 1), (9, 5), (10, 6), (11, 6), (None, 6)])
def test_a_chunk_ends_where_the_state_is_kept(stop_at: int | None, expected: int) -> None:
    running = (view(1, 10, 4, stop_at=stop_at),)
    assert rows(decide(snapshot(running, (view(2, 30),)))) == {1: expected, 2: 16 - expected}


@pytest.mark.parametrize("stop_at", [3, 4])
def test_a_chunk_that_would_end_before_its_first_row_is_a_fault(stop_at: int) -> None:
    with pytest.raises(ValueError, match=f"start at 4 and end by {stop_at}"):
        decide(snapshot((view(1, 10, 4, stop_at=stop_at),)))


def test_a_waiting_prompt_that_ranks_before_a_running_one_is_served_before_it() -> None:
    running = (view(1, 30, 4, rank=(5.0, 1)),)
    urgent = view(2, 10, rank=(4.0, 2))
    assert rows(decide(snapshot(running, (urgent,)))) == {2: 10, 1: 6}


def test_a_running_prompt_is_served_before_a_waiting_one_of_the_same_rank() -> None:
    running, same = (view(1, 30, 4, rank=(5.0, 1)),), view(2, 10, rank=(5.0, 1))
    assert rows(decide(snapshot(running, (same,)))) == {1: 16}


def test_a_waiting_sequence_never_preempts_whatever_its_rank() -> None:
    bounds = limits(blocks=4)
    state = snapshot((view(5, 13, 12),), (view(1, 8),), bounds)
    assert rows(decide(state)) == {5: 1}
    assert not decide(state).preempted


def test_a_sequence_without_a_block_takes_those_of_the_last() -> None:
    bounds = limits(blocks=4)
    decision = decide(snapshot((view(1, 5, 4), view(2, 5, 4), view(3, 8, 7)), (), bounds))
    assert decision.preempted == (3,)
    assert rows(decision) == {1: 1, 2: 1}


def test_the_last_skips_a_step_rather_than_lose_its_work() -> None:
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


def test_a_victim_whose_blocks_others_hold_too_frees_nothing() -> None:
    # Sequence 3 shares its block with sequence 2: both go before sequence 1 has a block.
    running = (view(1, 5, 4), view(2, 7, 6, idle_blocks=1), view(3, 3, 2, idle_blocks=0))
    decision = decide(snapshot(running, free_blocks=0))
    assert decision.preempted == (3, 2)
    assert decision.shares == (Share(1, 1, 1),)


def test_nobody_is_preempted_if_that_would_not_give_a_row() -> None:
    running = (view(1, 4, 3), view(2, 5, 4), view(3, 3, 2, idle_blocks=0))
    decision = decide(snapshot(running, free_blocks=0))
    assert not decision.preempted
    assert rows(decision) == {1: 1, 3: 1}


def test_the_first_proceeds_even_if_all_others_share_all_their_blocks() -> None:
    running = (view(1, 5, 4), *(view(n, 7, 6, idle_blocks=0) for n in (2, 3)))
    decision = decide(snapshot(running, bounds=limits(blocks=3), free_blocks=0))
    assert decision.preempted == (3, 2)
    assert decision.shares == (Share(1, 1, 1),)


def test_a_sequence_with_nothing_pending_is_neither_served_nor_preempted() -> None:
    bounds = limits(blocks=4)
    running = (view(1, 5, 4), view(2, 4, 3), view(3, 8, 8))
    decision = decide(snapshot(running, (), bounds))
    assert decision.preempted == (2,)
    assert rows(decision) == {1: 1}


def test_nothing_runs_while_all_blocks_are_held_by_sequences_with_nothing_pending() -> None:
    running = (view(1, 5, 4), view(2, 12, 12))
    assert decide(snapshot(running, (), limits(blocks=4))) == ((), (), (), "idle")


def test_a_chunk_shrinks_to_the_blocks_that_are_free() -> None:
    bounds = limits(blocks=4)
    assert rows(decide(snapshot((view(1, 4, 3), view(2, 12, 4)), (), bounds))) == {1: 1, 2: 8}


@pytest.mark.parametrize(
    ("running", "waiting", "kind"),
    [
        ((), (), "idle"),
        ((DECODING,), (), "decode"),
        ((PROMPT,), (), "prefill"),
        ((), (PROMPT,), "prefill"),
        ((DECODING, PROMPT), (), "mixed"),
        ((DECODING,), (view(3, 1),), "mixed"),
        ((), (view(3, 1),), "prefill"),
    ],
)
def test_the_kind_says_whether_chunks_or_decodes_run(
    running: tuple[SequenceView, ...], waiting: tuple[SequenceView, ...], kind: str
) -> None:
    assert decide(snapshot(running, waiting)).kind == kind


@pytest.mark.parametrize(
    ("last_kind", "expected"),
    [(None, {2: 16}), ("idle", {2: 16}), ("decode", {2: 16}), ("prefill", {1: 1})],
)
def test_steps_that_may_not_be_mixed_take_turns(last_kind: Any, expected: dict[int, int]) -> None:
    state = snapshot((DECODING, PROMPT), (), limits(mixes=False), last_kind=last_kind)
    assert rows(decide(state)) == expected


@pytest.mark.parametrize("last_kind", [None, "decode", "prefill"])
def test_without_work_for_the_other_kind_steps_of_one_kind_follow_each_other(
    last_kind: Any,
) -> None:
    bounds = limits(mixes=False)
    full = snapshot((DECODING,), (view(2, 300),), bounds, last_kind=last_kind)
    assert decide(full).kind == "decode"
    assert decide(snapshot((PROMPT,), (), bounds, last_kind=last_kind)).kind == "prefill"
    assert decide(snapshot((), (PROMPT,), bounds, last_kind=last_kind)).kind == "prefill"


def test_a_turn_without_rows_for_want_of_blocks_passes_to_the_other_kind() -> None:
    # First the prompt is last and finds no block, then the decoding one.
    bounds = limits(blocks=4, mixes=False)
    state = snapshot((view(1, 8, 7), view(2, 12, 8)), (), bounds, last_kind="decode")
    assert rows(decide(state)) == {1: 1}
    state = snapshot((view(1, 30, 12), view(2, 5, 4)), (), bounds, last_kind="prefill")
    assert rows(decide(state)) == {1: 4}


def test_a_turn_does_not_hand_out_blocks_that_an_earlier_one_needs_in_the_next() -> None:
    bounds = limits(blocks=4, mixes=False)
    state = snapshot((view(1, 9, 8), view(2, 12, 4)), (), bounds, last_kind="decode")
    assert decide(state).kind == "decode"
    state = snapshot((view(1, 12, 8), view(2, 5, 4)), (), bounds, last_kind="prefill")
    assert decide(state).kind == "prefill"


def test_nobody_is_preempted_for_one_that_has_no_turn() -> None:
    running = (view(1, 5, 4), view(2, 8, 5), view(3, 3, 2))
    state = snapshot(running, (), limits(blocks=4, mixes=False), last_kind="decode")
    assert decide(state) == ((), (), (Share(2, 3, 0),), "prefill")
    state = replace(state, last_kind="prefill")
    assert decide(state) == ((3,), (), (Share(1, 1, 1),), "decode")


@pytest.mark.parametrize(
    "wrong", [{"max_rows": 0}, {"max_sequences": 0}, {"block_tokens": 0}, {"usable_blocks": 0}]
)
def test_limits_must_be_positive(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        replace(limits(), **wrong)


def test_a_step_must_have_a_row_for_each_running_sequence() -> None:
    with pytest.raises(ValueError, match="3 rows cannot serve 4"):
        limits(rows=3)


def test_drafts_are_fed_behind_the_row_that_is_due_and_prompts_share_the_rest() -> None:
    bounds = limits(rows=16, rows_each=4)
    running = (view(1, 9, 8, draft_rows=3), view(2, 30, 4), view(3, 3, 2))
    assert rows(decide(snapshot(running, (), bounds))) == {1: 4, 2: 11, 3: 1}


@pytest.mark.parametrize(("free", "fed"), [(0, 2), (1, 4), (2, 4)])
def test_drafts_take_a_free_block_and_are_left_out_without_one(free: int, fed: int) -> None:
    """One more row fits into the block that the row due begins at the end of."""
    running = (view(1, 7, 6, draft_rows=3),)
    decision = decide(snapshot(running, (), limits(rows_each=4), free_blocks=free))
    assert decision.shares == (Share(1, fed, int(fed == 4)),)


def test_drafts_leave_a_block_to_a_row_that_is_due_behind_them() -> None:
    running = (view(1, 8, 7, draft_rows=3), view(2, 5, 4))
    bounds = limits(rows_each=4)
    one = decide(snapshot(running, (), bounds, free_blocks=1))
    assert one.shares == (Share(1, 1, 0), Share(2, 1, 1))
    two = decide(snapshot(running, (), bounds, free_blocks=2))
    assert two.shares == (Share(1, 4, 1), Share(2, 1, 1))


def test_nobody_is_preempted_for_drafts() -> None:
    running = (view(1, 8, 7, draft_rows=3), view(2, 3, 2))
    decision = decide(snapshot(running, (), limits(rows_each=4), free_blocks=0))
    assert decision == ((), (), (Share(1, 1, 0), Share(2, 1, 0)), "decode")


def test_a_sequence_that_has_no_turn_claims_no_blocks_for_drafts() -> None:
    bounds = limits(mixes=False, rows_each=4)
    running = (view(1, 8, 7, draft_rows=3), view(2, 30, 4))
    state = snapshot(running, (), bounds, free_blocks=3, last_kind="decode")
    assert decide(state).shares == (Share(2, 12, 3),)


def test_a_step_must_have_room_for_the_drafts_of_each_running_sequence() -> None:
    assert limits(rows=16, sequences=4, rows_each=4).rows_each == 4
    with pytest.raises(ValueError, match="15 rows cannot serve 4 sequences of 4 each"):
        limits(rows=15, sequences=4, rows_each=4)
    with pytest.raises(ValueError, match="at least 1"):
        replace(limits(), rows_each=0)
