"""The scheduling policy on random snapshots."""

from collections.abc import Callable
from dataclasses import replace

from deepinfer_core.schedule.policy import decide, options
from deepinfer_core.schedule.snapshot import Decision, Limits, SequenceView, Snapshot
from hypothesis import given
from hypothesis import strategies as st

BLOCK = 4
DRAFTS = 3


def rows(decision: Decision) -> dict[int, int]:
    return {share.sequence_id: share.row_count for share in decision.shares}


@st.composite
def running_views(draw: st.DrawFn, number: int, shared: int) -> SequenceView:
    """One of a group that holds the same first ``shared`` blocks and some of its own."""
    known = draw(st.integers(1, 8 * BLOCK - 1))
    computed = draw(st.sampled_from([known - 1, draw(st.integers(0, known))]))
    blocks = -(-computed // BLOCK) + draw(st.integers(0, 1))
    stop_at = draw(st.none() | st.integers(computed + 1, 8 * BLOCK))
    idle = max(0, blocks - shared)
    rank = (float(draw(st.integers(0, 3))), number)
    rest = {"block_count": blocks, "idle_blocks": idle, "stop_at": stop_at, "rank": rank}
    if known - computed == 1 and stop_at is None:
        rest["draft_rows"] = draw(st.integers(0, DRAFTS))
    return SequenceView(number, known, computed, **rest)


@st.composite
def waiting_views(draw: st.DrawFn, number: int) -> SequenceView:
    known = draw(st.integers(1, 8 * BLOCK - 1))
    cached = draw(st.integers(0, (known - 1) // BLOCK))
    computed = draw(st.integers(0, cached * BLOCK))
    return SequenceView(
        number,
        known,
        computed,
        block_count=cached,
        idle_blocks=draw(st.integers(0, cached)),
        stop_at=draw(st.none() | st.integers(computed + 1, 8 * BLOCK)),
        is_ready=draw(st.integers(0, 3)) > 0,
        rank=(float(draw(st.integers(0, 3))), number),
    )


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    sequences = draw(st.integers(1, 5))
    shared = draw(st.integers(0, 3))
    running = [draw(running_views(n, shared)) for n in range(draw(st.integers(0, sequences)))]
    own = sum(item.idle_blocks for item in running)
    both = max((item.block_count - item.idle_blocks for item in running), default=0)
    free = draw(st.integers(max(0, 8 - own - both), 12))
    waiting = [draw(waiting_views(100 + n)) for n in range(draw(st.integers(0, 5)))]
    fitting = [item for item in waiting if item.idle_blocks <= free]
    return Snapshot(
        limits=Limits(
            max_rows=draw(st.integers(sequences * (1 + DRAFTS), 40)),
            max_sequences=sequences,
            block_tokens=BLOCK,
            usable_blocks=own + both + free,
            mixes=draw(st.booleans()),
            rows_each=1 + DRAFTS,
        ),
        running=tuple(sorted(running, key=lambda item: item.rank)),
        waiting=tuple(sorted(fitting, key=lambda item: item.rank)),
        free_blocks=free,
        free_slots=sequences - len(running),
        last_kind=draw(st.sampled_from([None, "idle", "prefill", "decode"])),
    )


Check = Callable[[Snapshot, Decision], None]


@given(snapshots())
def test_every_decision_keeps_every_limit(check_decision: Check, state: Snapshot) -> None:
    for decision in (decide(state), *options(state)):
        check_decision(state, decision)
        views = {item.sequence_id: item for item in state.running + state.waiting}
        admitted = sum(views[number].idle_blocks for number in decision.admitted)
        taken = sum(share.new_blocks for share in decision.shares) + admitted
        kept = [item for item in state.running if item.sequence_id not in decision.preempted]
        own = sum(item.idle_blocks for item in kept)
        both = max((item.block_count - item.idle_blocks for item in kept), default=0)
        assert own + both + taken <= state.limits.usable_blocks


@given(snapshots())
def test_where_all_decode_nobody_loses_a_row_or_its_place_to_the_drafts_of_others(
    state: Snapshot,
) -> None:
    decoding = tuple(
        item._replace(computed_tokens=item.known_tokens - 1)
        for item in state.running
        if -(-(item.known_tokens - 1) // BLOCK) <= item.block_count and item.stop_at is None
    )
    state = replace(state, running=decoding, waiting=())
    plain = tuple(item._replace(draft_rows=0) for item in decoding)
    with_drafts, without = decide(state), decide(replace(state, running=plain))
    assert with_drafts.preempted == without.preempted
    assert set(rows(with_drafts)) == set(rows(without))
    wanted = {item.sequence_id: 1 + item.draft_rows for item in decoding}
    assert all(1 <= count <= wanted[number] for number, count in rows(with_drafts).items())


def pending(item: SequenceView) -> bool:
    return item.known_tokens > item.computed_tokens


@given(snapshots())
def test_the_first_in_rank_proceeds_or_waits_for_a_running_one_that_does(state: Snapshot) -> None:
    if not all(pending(item) for item in state.running):
        return  # The next results may have to come first.
    ready = [item for item in state.waiting if item.is_ready]
    if state.limits.mixes:
        served = set(rows(decide(state)))
    else:
        served = {number for decision in options(state) for number in rows(decision)}
    first = sorted([*state.running[:1], *ready[:1]], key=lambda item: item.rank)
    if first and first[0] not in state.running and first[0].sequence_id not in served:
        assert state.running
        first = [*state.running]
    assert not first or first[0].sequence_id in served


@given(snapshots())
def test_unmixed_steps_take_turns_unless_one_kind_has_no_rows(state: Snapshot) -> None:
    state = replace(state, limits=replace(state.limits, mixes=False))
    prefill, decode = options(state)
    expected = [item for item in (prefill, decode) if item.shares]
    if len(expected) == 2 and state.last_kind == "prefill":
        expected.reverse()
    assert decide(state) == (expected[0] if expected else ((), (), (), "idle"))


@given(snapshots())
def test_unmixed_steps_have_rows_whenever_mixed_ones_have(state: Snapshot) -> None:
    mixed = decide(replace(state, limits=replace(state.limits, mixes=True)))
    assert bool(mixed.shares) == any(decision.shares for decision in options(state))


@given(snapshots())
def test_the_same_snapshot_gives_the_same_decision(state: Snapshot) -> None:
    assert decide(state) == decide(state)


@given(snapshots())
def test_what_running_sequences_hold_alone_matters_only_if_a_step_may_preempt(
    state: Snapshot,
) -> None:
    if not state.limits.may_preempt(len(state.running), state.free_blocks):
        unknown = tuple(item._replace(idle_blocks=0) for item in state.running)
        assert decide(replace(state, running=unknown)) == decide(state)
