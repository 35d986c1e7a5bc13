"""Group votes: all members run the same, nobody waits for long, an idle group runs nothing."""

from collections.abc import Generator
from typing import Any

import pytest
from deepinfer_core.schedule.policy import decide
from deepinfer_core.schedule.snapshot import Limits, SequenceView, Snapshot
from deepinfer_core.schedule.votes import Agreement, Vote, agree, ballot_of
from hypothesis import given, settings
from hypothesis import strategies as st

NOTHING, CHUNKS, DECODES, BOTH = (
    Vote(False, False),
    Vote(True, False),
    Vote(False, True),
    Vote(True, True),
)
LONGEST = 12


def kinds(votes: list[Vote], count: int, patience_steps: int, mixes: bool = False) -> list[str]:
    agreement, found = Agreement(), []
    for _ in range(count):
        agreement = agree(votes, agreement, mixes=mixes, patience_steps=patience_steps)
        found.append(agreement.kind)
    return found


@pytest.mark.parametrize("mixes", [False, True])
@pytest.mark.parametrize(
    ("vote", "kind"), [(NOTHING, "idle"), (CHUNKS, "prefill"), (DECODES, "decode")]
)
def test_work_of_one_kind_is_run_at_once(vote: Vote, kind: str, mixes: bool) -> None:
    for votes in ([vote], [NOTHING, vote, NOTHING], [vote, vote]):
        assert kinds(votes, 3, 5, mixes) == [kind] * 3


@pytest.mark.parametrize("votes", [[BOTH], [CHUNKS, DECODES], [BOTH, NOTHING]])
def test_mixed_steps_keep_nobody_waiting(votes: list[Vote]) -> None:
    assert kinds(votes, 3, 5, mixes=True) == ["mixed"] * 3


@pytest.mark.parametrize("votes", [[BOTH], [BOTH, CHUNKS], [BOTH, NOTHING, CHUNKS]])
def test_kinds_alternate_if_every_member_with_work_has_chunks(votes: list[Vote]) -> None:
    assert kinds(votes, 4, 5) == ["prefill", "decode", "prefill", "decode"]


@pytest.mark.parametrize("patience_steps", [1, 2, 3])
def test_chunks_wait_for_decoding_members_as_long_as_agreed(patience_steps: int) -> None:
    decodes = ["decode"] * patience_steps
    assert kinds([CHUNKS, DECODES], 2 * patience_steps + 3, patience_steps) == [
        *decodes, "prefill", *decodes, "prefill", "decode",
    ]  # fmt: skip


def test_an_idle_group_counts_no_steps() -> None:
    before = agree([CHUNKS, DECODES], Agreement(), mixes=False, patience_steps=2)
    assert before.waited_steps == 1
    assert agree([NOTHING], before, mixes=False, patience_steps=2) == Agreement("idle", 0)


@pytest.mark.parametrize(("votes", "patience_steps"), [([], 1), ([BOTH], 0)])
def test_a_group_needs_members_and_patience(votes: list[Vote], patience_steps: int) -> None:
    with pytest.raises(ValueError, match="a member and a patience"):
        agree(votes, Agreement(), mixes=False, patience_steps=patience_steps)


def lone_snapshot(mixes: bool, running: str, waits: bool, last_kind: Any) -> Snapshot:
    limits = Limits(max_rows=8, max_sequences=4, block_tokens=4, usable_blocks=9, mixes=mixes)
    views = {"d": SequenceView(1, 5, 4, 2, 2), "p": SequenceView(2, 6, 2, 1, 1)}
    return Snapshot(
        limits=limits,
        running=tuple(views[letter] for letter in running),
        waiting=(SequenceView(3, 4, 0, 0),) if waits else (),
        free_blocks=5,
        free_slots=2,
        last_kind=last_kind,
    )


@pytest.mark.parametrize("mixes", [False, True])
@pytest.mark.parametrize("running", ["", "d", "p", "dp"])
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("last_kind", ["idle", "prefill", "decode"])
def test_a_group_of_one_runs_what_an_engine_alone_runs(
    mixes: bool, running: str, waits: bool, last_kind: Any
) -> None:
    snapshot = lone_snapshot(mixes, running, waits, last_kind)
    ballot = ballot_of(snapshot)
    agreement = agree([ballot.vote], Agreement(last_kind), mixes=mixes, patience_steps=3)
    assert ballot.decision(agreement.kind) == decide(snapshot)
    assert agreement.kind == decide(snapshot).kind


class Member:
    """One member with an engine of its own."""

    def __init__(self, engine: Any, patience_steps: int) -> None:
        self.engine = engine
        self.patience_steps = patience_steps

    def life(self) -> Generator[tuple[str, Any], list[Any], None]:
        """Collectives in the order in which this member enters them; receives what all gave."""
        agreement = Agreement()
        mixes = self.engine.limits.mixes
        waited = {"prefill": 0, "decode": 0}
        while True:
            snapshot = self.engine.snapshot()
            ballot = ballot_of(snapshot)
            votes = yield "vote", ballot.vote
            agreement = agree(votes, agreement, mixes=mixes, patience_steps=self.patience_steps)
            if agreement.kind == "idle":
                yield "rest", 0
                self.engine.collect()
                continue
            decision = ballot.decision(agreement.kind)
            self._check_waits(waited, ballot.vote, agreement.kind)
            # Who votes for a kind has rows for it.
            wanted = ("prefill", "mixed") * ballot.vote.has_chunks
            wanted += ("decode", "mixed") * ballot.vote.has_decodes
            assert bool(decision.shares) == (agreement.kind in wanted)
            yield agreement.kind, len(decision.shares)
            self.engine.carry_out(snapshot, decision)

    def _check_waits(self, waited: dict[str, int], vote: Vote, kind: str) -> None:
        wants = {"prefill": vote.has_chunks, "decode": vote.has_decodes}
        longest = {"prefill": self.patience_steps, "decode": 1}
        for one, bound in longest.items():
            is_served = not wants[one] or kind in (one, "mixed")
            waited[one] = 0 if is_served else waited[one] + 1
            assert waited[one] <= (0 if self.engine.limits.mixes else bound)


def exchange(lives: list[Generator[Any, Any, None]], received: list[Any] | None) -> list[Any]:
    """Let every member enter its next collective; all must have entered the same."""
    entered = [next(one) if received is None else one.send(received) for one in lives]
    assert len({name for name, _ in entered}) == 1
    return [value for _, value in entered]


ARRIVALS = st.lists(
    st.tuples(st.integers(0, 15), st.integers(0, 7), st.integers(1, 9), st.integers(1, 3)),
    max_size=16,
)
"""Step, member, tokens of prompt and of output."""


@settings(deadline=None)
@given(
    members=st.integers(1, 8),
    mixes=st.booleans(),
    lags=st.booleans(),
    patience_steps=st.integers(1, 4),
    arrivals=ARRIVALS,
)
def test_members_meet_in_every_collective_and_all_requests_end(
    model_engine: Any,
    members: int,
    mixes: bool,
    lags: bool,
    patience_steps: int,
    arrivals: list[tuple[int, int, int, int]],
) -> None:
    limits = Limits(max_rows=4, max_sequences=3, block_tokens=4, usable_blocks=5, mixes=mixes)
    engines = [model_engine(limits, lags=lags) for _ in range(members)]
    lives = [Member(engine, patience_steps).life() for engine in engines]
    # The first in rank of each member needs at most a step for each of its rows and for each of
    # those that run before it, each after waiting for steps of the other kind.
    bound = 16 + (patience_steps + 1) * (LONGEST + 2) * (limits.max_sequences + 1) * len(arrivals)
    votes = exchange(lives, None)
    for step in range(bound + 1):
        rows = exchange(lives, votes)
        assert any(rows) == any(vote.has_chunks or vote.has_decodes for vote in votes)
        for at, member, prompt, output in arrivals:
            if at == step:
                engines[member % members].submit(prompt, output=output)
        votes = exchange(lives, rows)
        if step > 15 and not any(engine.sequences for engine in engines):
            break
    assert not any(engine.sequences for engine in engines)
