"""Do blocks that are held for convenience make room where a step needs them, and only there?"""

from dataclasses import replace

import pytest
from deepinfer_core.schedule.policy import decide, options
from deepinfer_core.schedule.shortage import is_short, lacks_room, owed_blocks
from deepinfer_core.schedule.snapshot import Limits, SequenceView, Snapshot
from hypothesis import given
from hypothesis import strategies as st

from tests.core.schedule.test_policy_properties import snapshots

LIMITS = Limits(max_rows=16, max_sequences=4, block_tokens=4, usable_blocks=40)


def snapshot(*running: SequenceView, free: int, waiting: tuple[SequenceView, ...] = ()) -> Snapshot:
    return Snapshot(limits=LIMITS, running=running, waiting=waiting, free_blocks=free, free_slots=2)


def decoding(number: int, tokens: int, blocks: int) -> SequenceView:
    return SequenceView(number, tokens, tokens - 1, block_count=blocks)


def test_nothing_is_let_go_for_sequences_that_have_their_blocks() -> None:
    assert not is_short(snapshot(decoding(1, 9, 3), decoding(2, 13, 4), free=0))


def test_what_runs_is_owed_a_block_for_each_token_that_has_no_place() -> None:
    running = decoding(1, 13, 3), SequenceView(2, 30, 8, block_count=2)
    assert owed_blocks(LIMITS, running) == 1 + 6
    assert is_short(snapshot(*running, free=5))
    # A step of 16 rows takes six blocks for these two at most; the next one asks anew.
    assert not is_short(snapshot(*running, free=6))


@pytest.mark.parametrize(("rows_each", "owed"), [(1, 0), (2, 0), (3, 1), (6, 1), (7, 2)])
def test_what_decodes_is_owed_the_blocks_of_its_drafts_as_well(rows_each: int, owed: int) -> None:
    """Ten tokens and the next one fill eleven places of twelve."""
    limits = replace(LIMITS, rows_each=rows_each, max_rows=40)
    assert owed_blocks(limits, [decoding(1, 10, 3)]) == owed


def test_one_whose_last_row_is_launched_is_owed_nothing() -> None:
    assert owed_blocks(LIMITS, [SequenceView(1, 12, 12, block_count=3)]) == 0


@pytest.mark.parametrize(("free", "is_lacking"), [(2, True), (3, False)])
def test_of_those_that_wait_the_first_that_is_ready_counts(free: int, is_lacking: bool) -> None:
    large = SequenceView(1, 100, 0, block_count=0, is_ready=False)
    first = SequenceView(2, 11, 4, block_count=1, idle_blocks=1)
    state = snapshot(free=free, waiting=(large, first, large))
    assert lacks_room(state) == is_lacking
    assert is_short(state) == is_lacking  # nobody runs, so it is let in
    state = snapshot(decoding(3, 9, 3), free=free, waiting=(large, first))
    assert lacks_room(state) == is_lacking
    assert not is_short(state)


def test_where_nobody_is_there_nothing_is_short() -> None:
    assert not is_short(snapshot(free=0))
    assert not lacks_room(snapshot(free=0))


@given(snapshots(), st.integers(0, 12))
def test_a_step_that_is_not_short_takes_free_blocks_only_and_nobodys_place(
    state: Snapshot, held: int
) -> None:
    """Though others hold some: the policy believes that running sequences hold all of them."""
    free = max(0, state.free_blocks - held)
    fitting = tuple(one for one in state.waiting if one.idle_blocks <= free)
    state = replace(state, waiting=fitting, free_blocks=free)
    if is_short(state):
        return
    views = {one.sequence_id: one for one in (*state.running, *state.waiting)}
    for decision in (decide(state), *options(state)):
        idle = sum(views[number].idle_blocks for number in decision.admitted)
        assert idle + sum(share.new_blocks for share in decision.shares) <= state.free_blocks
        assert not decision.preempted
        assert {one.sequence_id for one in decision.shares} >= set(decision.admitted)
