"""A model of an engine: it carries decisions out and counts everything, but computes nothing.

Blocks, their users and the cache are real; a token is a function of its sequence and position. The
engine checks each decision, the books after each step, and that the first in rank never waits for
longer than those before it can need.
"""

from bisect import insort
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import pytest
from deepinfer_core.schedule.policy import decide
from deepinfer_core.schedule.rank import Rank, rank_of
from deepinfer_core.schedule.snapshot import (
    Decision,
    Limits,
    SequenceView,
    Share,
    Snapshot,
    StepKind,
)
from hypothesis import settings

settings.register_profile("many", max_examples=10_000, deadline=None)

BLOCK = 4
WINDOW = 3
"""Tokens that a replay feeds again before the end of a cached prefix."""
KEEP_STATE_EVERY = 8
"""Positions whose state is kept; chunks end there."""
BOOST_STEPS = 30.0


@dataclass(eq=False, slots=True)
class ModelSequence:
    """A sequence in work; ``ends_at`` is hidden from the policy, ``longest`` is not."""

    number: int
    family: int
    shared_tokens: int
    known: int
    ends_at: int
    longest: int
    rank: Rank
    is_ready: bool = True
    computed: int = 0
    in_flight: int = 0
    blocks: list[int] = field(default_factory=list)

    def key(self, index: int) -> Hashable:
        """What the block holds: equal for equal tokens, from the first on."""
        shared = (index + 1) * BLOCK <= self.shared_tokens
        return ("family", self.family, index) if shared else ("own", self.number, index)

    def __lt__(self, other: "ModelSequence") -> bool:
        return self.rank < other.rank


class ModelEngine:
    """See the module.

    Args:
        limits: as the policy sees them.
        replays: a resumed sequence feeds its last window again, else it goes on from a kept state.
        lags: a result is known one step late, as on a device that runs a step behind.
    """

    def __init__(self, limits: Limits, *, replays: bool = False, lags: bool = False) -> None:
        self.limits = limits
        self.replays = replays
        self.lags = lags
        self.steps = 0
        self.running: list[ModelSequence] = []
        self.waiting: list[ModelSequence] = []
        self.free = list(range(limits.usable_blocks))
        self.users: Counter[int] = Counter()
        self.cached: dict[Hashable, int] = {}
        self.kept_states: set[Hashable] = set()
        self.launched: list[tuple[ModelSequence, int]] = []
        self.late: list[tuple[ModelSequence, int]] = []
        """Who draws a token in the last step and, if results lag, drew one in the step before; and
        how many tokens it then has."""
        self.last_kind: StepKind | None = None
        self.patience: tuple[ModelSequence, float] | None = None
        self.preemptions = 0
        self.resumed_tokens = 0
        self.count = 0

    # What a user does.

    def submit(
        self,
        prompt: int,
        *,
        output: int = 1,
        longest: int | None = None,
        priority: int = 0,
        family: int = 0,
        shared: int = 0,
        is_ready: bool = True,
    ) -> ModelSequence:
        """Add a request for ``output`` tokens, of at most ``longest`` with the prompt."""
        self.count += 1
        one = ModelSequence(
            self.count,
            family,
            min(shared, prompt),
            prompt,
            prompt + output,
            longest or prompt + output,
            rank_of(float(self.steps), priority, self.count, BOOST_STEPS),
            is_ready,
        )
        insort(self.waiting, one)
        return one

    def remove(self, one: ModelSequence) -> None:
        """Let a sequence go, finished or not."""
        (self.running if one in self.running else self.waiting).remove(one)
        self._release(one)

    def drop_idle_block(self, choice: int) -> None:
        """Evict one of the cached blocks that nobody holds."""
        idle = [key for key, block in self.cached.items() if not self.users[block]]
        if idle:
            self.free.append(self.cached.pop(idle[choice % len(idle)]))

    @property
    def sequences(self) -> list[ModelSequence]:
        return self.running + self.waiting

    # What an engine does.

    def snapshot(self) -> Snapshot:
        return Snapshot(
            limits=self.limits,
            running=tuple(self._running_view(one) for one in self.running),
            waiting=tuple(self._waiting_view(one) for one in self.waiting),
            free_blocks=self.free_blocks,
            free_slots=self.limits.max_sequences - len(self.running),
            last_kind=self.last_kind,
        )

    def step(self) -> Decision:
        """Decide and run a step, check everything."""
        snapshot = self.snapshot()
        decision = decide(snapshot)
        assert decision == decide(snapshot)
        self._watch_the_first(snapshot)
        self.carry_out(snapshot, decision)
        return decision

    def carry_out(self, snapshot: Snapshot, decision: Decision) -> None:
        """Run a decision on a snapshot; an empty one stands for a placeholder."""
        check_decision(snapshot, decision)
        self.last_kind = decision.kind
        by_number = {one.number: one for one in self.sequences}
        for number in decision.preempted:
            self._preempt(by_number[number])
        for number in decision.admitted:
            self._admit(by_number[number])
        for share in decision.shares:
            self._launch(by_number[share.sequence_id], share)
        self.collect()
        self.steps += 1
        self.check_books()

    def collect(self) -> None:
        """Look at the tokens of the last step, or of the one before if results lag."""
        if self.lags:
            due, self.late, self.launched = self.late, self.launched, []
        else:
            due, self.launched = self.launched, []
        for one, length in due:
            one.in_flight -= 1
            # It may have left since.
            if one in self.sequences and length >= min(one.ends_at, one.longest):
                self.remove(one)

    def drain(self, max_steps: int) -> None:
        """Run until nobody is left; fails if that takes more steps."""
        for one in self.waiting:
            one.is_ready = True
        for _ in range(max_steps):
            if not self.sequences:
                break
            self.step()
        assert not self.sequences
        assert self.free_blocks == self.limits.usable_blocks

    def check_books(self) -> None:
        """No block is lost, and none held otherwise than counted."""
        assert +self.users == Counter(block for one in self.running for block in one.blocks)
        assert not any(one.blocks for one in self.waiting)
        held = {block for block, users in self.users.items() if users}
        every = sorted(self.free + sorted(held | set(self.cached.values())))
        assert every == list(range(self.limits.usable_blocks))

    @property
    def free_blocks(self) -> int:
        return len(self.free) + sum(not self.users[block] for block in self.cached.values())

    def _running_view(self, one: ModelSequence) -> SequenceView:
        return SequenceView(
            sequence_id=one.number,
            known_tokens=one.known,
            computed_tokens=one.computed,
            block_count=len(one.blocks),
            idle_blocks=sum(self.users[block] == 1 for block in one.blocks),
            stop_at=stop_after(one.computed),
            rank=one.rank,
        )

    def _waiting_view(self, one: ModelSequence) -> SequenceView:
        start, blocks = self._resume(one)
        return SequenceView(
            sequence_id=one.number,
            known_tokens=one.known,
            computed_tokens=start,
            block_count=len(blocks),
            idle_blocks=sum(not self.users[block] for block in blocks),
            stop_at=stop_after(start),
            is_ready=one.is_ready and not one.in_flight,
            rank=one.rank,
        )

    def _resume(self, one: ModelSequence) -> tuple[int, list[int]]:
        """Where a waiting sequence would go on, and the cached blocks up to there."""
        blocks: list[int] = []
        kept = 0
        for index in range((one.known - 1) // BLOCK):
            block = self.cached.get(one.key(index))
            if block is None:
                break
            blocks.append(block)
            if one.key(index) in self.kept_states:
                kept = (index + 1) * BLOCK
        return (max(0, len(blocks) * BLOCK - WINDOW) if self.replays else kept), blocks

    def _admit(self, one: ModelSequence) -> None:
        one.computed, one.blocks = self._resume(one)
        self.resumed_tokens += one.computed
        self.users.update(one.blocks)
        self.waiting.remove(one)
        insort(self.running, one)

    def _preempt(self, one: ModelSequence) -> None:
        self.running.remove(one)
        self._release(one)
        one.computed = 0
        insort(self.waiting, one)
        self.preemptions += 1

    def _release(self, one: ModelSequence) -> None:
        for block in one.blocks:
            self.users[block] -= 1
            if not self.users[block] and block not in self.cached.values():
                self.free.append(block)
        one.blocks = []

    def _take(self) -> int:
        if not self.free:
            self.drop_idle_block(0)
        block = self.free.pop(0)
        self.users[block] = 1
        return block

    def _launch(self, one: ModelSequence, share: Share) -> None:
        one.blocks += [self._take() for _ in range(share.new_blocks)]
        one.computed += share.row_count
        for index in range(one.computed // BLOCK):
            self.cached.setdefault(one.key(index), one.blocks[index])
        if one.computed % KEEP_STATE_EVERY == 0:
            self.kept_states.add(one.key(one.computed // BLOCK - 1))
        if one.computed == one.known:
            one.in_flight += 1
            self.launched.append((one, one.known + 1))
            # The last token that it may have needs no row of its own.
            one.known += one.known + 1 < one.longest

    def _watch_the_first(self, snapshot: Snapshot) -> None:
        """Count down the steps that the first in rank may take to its end."""
        active = [
            one
            for one, view in zip(self.sequences, snapshot.running + snapshot.waiting, strict=True)
            if view.is_ready and (view.known_tokens > view.computed_tokens)
        ]
        first = min(active, default=None)
        if first is None:
            self.patience = None
        elif self.patience is None or self.patience[0] is not first:
            before = [] if first in self.running else self.running
            need = sum(one.longest + 2 for one in [first, *before])
            self.patience = (first, need * (1 if self.limits.mixes else 2))
        else:
            self.patience = (first, self.patience[1] - 1)
            assert self.patience[1] >= 0, f"{first} waits for ever"


def stop_after(position: int) -> int:
    return (position // KEEP_STATE_EVERY + 1) * KEEP_STATE_EVERY


def check_decision(snapshot: Snapshot, decision: Decision) -> None:
    """Every limit is kept and every order."""
    limits = snapshot.limits
    views = {view.sequence_id: view for view in snapshot.running + snapshot.waiting}
    running = [view.sequence_id for view in snapshot.running]
    shares = {share.sequence_id: share for share in decision.shares}
    assert len(shares) == len(decision.shares)
    assert sum(share.row_count for share in decision.shares) <= limits.max_rows
    assert len(running) + len(decision.admitted) <= limits.max_sequences or not decision.admitted
    assert len(decision.admitted) <= snapshot.free_slots
    assert not (decision.preempted and decision.admitted)
    for share in decision.shares:
        view = views[share.sequence_id]
        end = view.computed_tokens + share.row_count
        assert share.row_count >= 1
        assert end <= min(view.known_tokens, view.stop_at or end) + view.draft_rows
        held = max(view.block_count, limits.blocks_for(end))
        assert view.block_count + share.new_blocks == held
    assert set(shares) <= (set(running) | set(decision.admitted)) - set(decision.preempted)
    assert set(decision.admitted) <= set(shares)
    ready = [view.sequence_id for view in snapshot.waiting if view.is_ready]
    assert list(decision.admitted) == ready[: len(decision.admitted)]
    pending = [view.sequence_id for view in snapshot.running if is_pending(view)]
    kept = len(pending) - len(decision.preempted)
    assert list(decision.preempted) == pending[kept:][::-1]
    if decision.preempted:
        assert limits.may_preempt(len(running), snapshot.free_blocks)
        assert decision.shares
    assert decision.kind == kind_of(snapshot, decision)
    if not limits.mixes:
        assert decision.kind != "mixed"


def is_pending(view: SequenceView) -> bool:
    return view.known_tokens > view.computed_tokens


def kind_of(snapshot: Snapshot, decision: Decision) -> StepKind:
    decoding = {
        view.sequence_id
        for view in snapshot.running
        if view.known_tokens - view.computed_tokens == 1
    }
    are_decodes = {share.sequence_id in decoding for share in decision.shares}
    if not are_decodes:
        return "idle"
    return "mixed" if len(are_decodes) == 2 else "decode" if True in are_decodes else "prefill"


@pytest.fixture(scope="session")
def model_engine() -> type[ModelEngine]:
    """The class; tests build engines of their own."""
    return ModelEngine


@pytest.fixture(scope="session", name="check_decision")
def check_decision_fixture() -> Callable[[Snapshot, Decision], None]:
    """Fails if a decision breaks a limit or the order."""
    return check_decision
