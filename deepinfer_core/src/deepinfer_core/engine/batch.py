"""Who waits, who runs, and what does the next step feed?

Carries out what the scheduling policy decides; ``Pages`` moves blocks and slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import chain
from types import MappingProxyType

from deepinfer_core.engine.drafts.host import Drafting
from deepinfer_core.engine.drafts.sharing import with_room
from deepinfer_core.engine.drafts.state import DraftState
from deepinfer_core.engine.instruments import Readings
from deepinfer_core.engine.launch import Launch
from deepinfer_core.engine.page_records import Entry, Saved
from deepinfer_core.engine.pages import PageCounts, Pages
from deepinfer_core.engine.prefix_reuse import ReusePolicy
from deepinfer_core.engine.ranked_queue import RankedQueue
from deepinfer_core.engine.readings import readings_of
from deepinfer_core.engine.row_requests import verified_drafts
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.engine.stored.exchange import Exchange
from deepinfer_core.schedule.plan import Copy, StepPlan
from deepinfer_core.schedule.policy import decide
from deepinfer_core.schedule.shortage import is_short, lacks_room
from deepinfer_core.schedule.snapshot import Decision, Limits, SequenceView, Snapshot, StepKind

__all__ = ["Batch"]

_NOTHING_ACCEPTED: Mapping[int, tuple[int, ...]] = MappingProxyType({})

_MOST_ENTRIES = 64
"""Waiting sequences that one step looks up in the cache: so many at most are admitted at a time."""


class Batch:
    """The queues of one engine.

    Args:
        limits: fixed sizes.
        counts: how many pages there are; slots beside those of snapshots for ``limits`` at least.
        policy: what is reused; None shares nothing but samples of one prompt.
        drafting: how drafts are verified; None: there are none.
        exchange: with a store; None: there is none.

    Attributes:
        pages: blocks and slots.
        preemptions: how often a running sequence lost its blocks.
    """

    def __init__(
        self,
        limits: Limits,
        counts: PageCounts,
        policy: ReusePolicy | None = None,
        drafting: Drafting | None = None,
        exchange: Exchange | None = None,
    ) -> None:
        self.limits = limits
        self.drafting = drafting
        self.preemptions = 0
        policy = policy or ReusePolicy(block_tokens=limits.block_tokens, is_enabled=False)
        self.pages = Pages(counts, policy, exchange)
        self.clear()

    def clear(self) -> None:
        """Forget all sequences and everything they hold, in whatever state an interrupt left it."""
        self.pages.clear()
        self._running = RankedQueue()
        self._waiting = RankedQueue()
        self._by_id: dict[int, Sequence] = {}
        self._last_kind: StepKind | None = None
        self._places = list(range(1, self.limits.max_sequences + 1)) if self.drafting else []
        """Places of drafts that nobody has, the next one first."""

    def __len__(self) -> int:
        """Sequences in work."""
        return len(self._by_id)

    def __iter__(self) -> Iterator[Sequence]:
        """All sequences: those that run, then those that wait, each in order of rank."""
        return chain(self._running, self._waiting)

    def add(self, sequence: Sequence, leader: Sequence | None = None) -> None:
        """Let a sequence wait for its turn.

        Args:
            sequence: new.
            leader: first sample of the same prompt, in work; what it computes is shared.
        """
        prompt = sequence.request.prompt_ids
        is_scored = sequence.is_scored
        if leader and len(prompt) > 1 and not is_scored and self.pages.may_fork(leader):
            sequence.leader = leader
            leader.followers += 1
            leader.fork_due = True
        self._by_id[sequence.sequence_id] = sequence
        self._waiting.add(sequence)

    def get(self, sequence_id: int) -> Sequence | None:
        """A sequence in work, or None."""
        return self._by_id.get(sequence_id)

    def remove(self, sequence: Sequence) -> None:
        """Let a sequence go and take back what it holds; it must be in work."""
        del self._by_id[sequence.sequence_id]
        queue = self._waiting if sequence.state_slot is None else self._running
        queue.remove(sequence)
        self._leave_place(sequence)
        self.pages.leave(sequence)

    def launch(self) -> Launch | None:
        """Decide the next step and take what it needs; None if nobody can feed a row now."""
        entries, drafting = self._entries(), self.drafting
        if drafting is not None:
            views = [one.view for one in entries.values()]
            if not drafting.want(self._running, views, max_rows=self.limits.max_rows):
                drafting = None
        snapshot = self._snapshot(entries)
        if is_short(snapshot):
            # What is kept for convenience goes before anything that would be computed again.
            self.pages.make_room()
            snapshot = self._snapshot(entries := self._entries())
        decision = decide(snapshot)
        if not decision.admitted and lacks_room(snapshot):
            self.pages.make_room()
        for sequence_id in decision.preempted:
            self._preempt(self._by_id[sequence_id])
        admitted = [self._by_id[number] for number in decision.admitted]
        restored = list(filter(None, [self._admit(one, entries) for one in admitted]))
        return self._launch(decision, admitted, restored, drafting)

    def tend(self) -> None:
        """Do what a store gives to do between two steps."""
        if self.pages.exchange is not None:
            self.pages.exchange.tend(self._waiting, self._running, self.limits)

    def commit(
        self,
        launch: Launch,
        now_s: float,
        accepted: Mapping[int, tuple[int, ...]] = _NOTHING_ACCEPTED,
    ) -> None:
        """The rows of a step are computed: let others find whole blocks and states.

        Args:
            launch: the step.
            now_s: monotonic clock.
            accepted: drafts that were kept, by the number of the sequence.
        """
        pages, size, drafting = self.pages, self.limits.block_tokens, launch.drafting is not None
        passed: dict[int, range] = {}
        kept: tuple[int, ...] = ()
        for sequence, admission, end, draws in zip(
            launch.sequences, launch.admissions, launch.ends, launch.draws, strict=True
        ):
            if draws:
                sequence.open_tokens -= draws
                sequence.drawn_index = -1
            if sequence.admissions != admission or sequence.state_slot is None:
                continue  # what was computed is given back already
            if drafting:
                kept = accepted.get(sequence.sequence_id, ())
                if draws:
                    # The step may have begun later than it was launched for, too.
                    end = len(sequence.tokens) + len(kept)  # noqa: PLW2901
                    sequence.computed -= draws - 1 - len(kept)
                    sequence.drafts.drop()
            if launch.saved:
                passed[sequence.sequence_id] = range(sequence.committed + 1, end + 1)
            sequence.committed = end
            if end // size > sequence.published:
                pages.publish(sequence, kept)
            if sequence.prefilled_s is None and end >= sequence.prompt_tokens:
                sequence.prefilled_s = now_s
        for saved in launch.saved:
            # A state is good for a boundary that this very step passes: one that it does not reach
            # is not there yet, and behind an earlier one too much was written.
            rows = passed.get(saved.sequence.sequence_id, range(0))
            pages.keep(saved, succeeded=saved.tokens in rows)

    def drop_copies(self, launch: Launch) -> None:
        """The copies of states that a step makes are not wanted."""
        for saved in launch.saved:
            self.pages.keep(saved, succeeded=False)

    def readings(self) -> Readings:
        """What is held now; quick, and right from any thread."""
        return readings_of(
            self.pages, self.limits, len(self._running), len(self._waiting), self.preemptions
        )

    def check_integrity(self, saved: Iterable[Saved] | None = ()) -> None:
        """Compare the books with what the sequences hold.

        Args:
            saved: copies whose steps have not ended; None: not known, so any may be set apart.

        Raises:
            EngineError: a block or slot is lost, or held otherwise than counted.
        """
        self.pages.check_integrity(self, saved)

    def _entries(self) -> dict[int, Entry]:
        """What waiting sequences would take over, of as many as may be admitted."""
        entries: dict[int, Entry] = {}
        most = min(self.limits.max_sequences - len(self._running), _MOST_ENTRIES)
        for sequence in self._waiting:
            if len(entries) >= most:
                break
            if sequence.is_ready:
                entries[sequence.sequence_id] = self.pages.entry(sequence)
        return entries

    def _snapshot(self, entries: dict[int, Entry]) -> Snapshot:
        running, free = len(self._running), self.pages.cache.free_blocks
        return Snapshot(
            limits=self.limits,
            running=self._views(self.limits.may_preempt(running, free)),
            waiting=tuple(entry.view for entry in entries.values()),
            free_blocks=free,
            free_slots=self.pages.running_slots - running,
            last_kind=self._last_kind,
        )

    def _views(self, may_preempt: bool) -> tuple[SequenceView, ...]:
        if not may_preempt:
            return tuple([sequence.view() for sequence in self._running])
        cache = self.pages.cache
        return tuple(
            [sequence.view(cache.sole_among(sequence.block_ids)) for sequence in self._running]
        )

    def _launch(
        self, decision: Decision, admitted: list[Sequence], restored: list[Copy],
        drafting: Drafting | None,
    ) -> Launch | None:  # fmt: skip
        if not decision.shares:
            return None
        steps, sequences, draws = [], [], []
        cloned, saved = list[Copy](), list[Saved]()
        size = self.limits.block_tokens
        prefixes = drafting.prefixes(admitted) if drafting else ()
        for sequence_id, row_count, new_blocks in decision.shares:
            sequence = self._by_id[sequence_id]
            if new_blocks:
                copy = self.pages.grow(sequence, new_blocks)
                if copy is not None:
                    cloned.append(copy)
            sequences.append(sequence)
            step = sequence.step(row_count)
            steps.append(step)
            drawn = 0
            if step.wants_token:
                drawn = 1 + verified_drafts(step, sequence) if step.scored_rows else 1
                sequence.open_tokens += drawn
            draws.append(drawn)
            end = sequence.computed
            if drafting and drawn:
                # If the step before keeps no draft, and this one none, it ends here.
                least = len(sequence.tokens) + (sequence.open_tokens > drawn)
                if end - end % size >= least:
                    end -= end % size
            if sequence.stops or not end % size:
                kept = self.pages.save(sequence, end)
                if kept is not None:
                    saved.append(kept)
        self._last_kind = decision.kind
        copies = tuple([Copy(item.sequence.state_slot or 0, item.slot) for item in saved])
        shares = drafting.planner.shares() if drafting else None
        if shares is not None:
            may_share = decision.kind == "decode" and not saved
            roomy = with_room(steps, sequences, size) if may_share else None
            steps, shares = (steps, None) if roomy is None else (roomy, shares)
        plan = StepPlan(tuple(steps), tuple(cloned), tuple(restored), copies, prefixes, shares)
        return Launch(plan, decision.kind, sequences, draws, saved, admitted, drafting)

    def _admit(self, sequence: Sequence, entries: dict[int, Entry]) -> Copy | None:
        self._waiting.remove(sequence)
        copy = self.pages.admit(sequence, entries[sequence.sequence_id])
        if self.drafting is not None:
            sequence.drafts.place = heappop(self._places)
        self._running.add(sequence)
        return copy

    def _preempt(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        self._leave_place(sequence)
        self.pages.release(sequence)
        sequence.preemptions += 1
        self._waiting.add(sequence)
        self.preemptions += 1

    def _leave_place(self, sequence: Sequence) -> None:
        if sequence.drafts.place:
            heappush(self._places, sequence.drafts.place)
        sequence.drafts = DraftState()
