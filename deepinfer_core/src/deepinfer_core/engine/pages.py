"""Which blocks and slots does a sequence get when it enters, and what becomes of them?

Everything that takes, shares, publishes or gives back a block or a slot is here, so that a sequence
leaves with nothing, whatever state it was in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from deepinfer_core.cache.pool import PagePool
from deepinfer_core.cache.prefix import PrefixCache
from deepinfer_core.cache.recovery import Resume
from deepinfer_core.engine.forks import Forks
from deepinfer_core.engine.page_records import Entry, Saved
from deepinfer_core.engine.prefix_reuse import ReuseCounts, ReusePolicy
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.engine.stored.exchange import Exchange
from deepinfer_core.errors import EngineError
from deepinfer_core.schedule.plan import Copy
from deepinfer_core.schedule.snapshot import SequenceView

__all__ = ["PageCounts", "Pages"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageCounts:
    """How many pages an engine has.

    Attributes:
        blocks: blocks, the dummy included.
        slots: state slots, the dummy and those of snapshots included.
        snapshots: slots that copies of states may take.
    """

    blocks: int
    slots: int
    snapshots: int = 0


class Pages:
    """The blocks and slots of one engine.

    Args:
        counts: how many there are.
        policy: what is reused.
        exchange: with a store; None: there is none.
    """

    def __init__(
        self, counts: PageCounts, policy: ReusePolicy, exchange: Exchange | None = None
    ) -> None:
        self.policy = policy
        self.exchange = exchange
        self._counts = counts
        self._past = ReuseCounts()
        self._start_empty()

    def clear(self) -> None:
        """Forget who holds what and what is cached, in whatever state an interrupt left it."""
        self._past = self.counts()
        self._start_empty()

    def _start_empty(self) -> None:
        blocks = PagePool(self._counts.blocks, "block")
        self._slots = PagePool(self._counts.slots, "state slot")
        self.cache = PrefixCache(
            blocks,
            self._slots,
            block_tokens=self.policy.block_tokens,
            max_snapshots=self._counts.snapshots,
        )
        self._forks = Forks(self.cache, self.policy.block_tokens)
        if self.exchange is not None:
            self.exchange.start(self.cache)

    @property
    def running_slots(self) -> int:
        """Slots for running sequences; those set apart for copies do not count."""
        return self._counts.slots - 1 - self._counts.snapshots

    @property
    def free_slots(self) -> int:
        """Slots that nobody holds."""
        return self._slots.free_count

    def counts(self) -> ReuseCounts:
        """What was reused and evicted so far, before every ``clear`` as well."""
        return self._past.plus(self.cache)

    def entry(self, sequence: Sequence) -> Entry:
        """Look up what a waiting sequence would take over; nothing changes."""
        leader = sequence.leader
        if leader is not None and leader.fork is not None:
            view, blocks = self._forks.entry(sequence, leader.fork)
            return Entry(view, None, blocks)
        keys: list[bytes] = []
        if sequence.chain is not None:
            sequence.chain.extend(sequence.tokens)
            keys = sequence.chain.keys
        found = self.cache.match(keys)
        resume = self.policy.resume(sequence, len(found.block_ids), found.snapshots)
        blocks = found.block_ids[: resume.cached_tokens // self.policy.block_tokens]
        stops = self.policy.stops(sequence, resume)
        view = SequenceView(
            sequence.sequence_id,
            len(sequence.tokens),
            resume.start,
            len(blocks),
            self.cache.idle_among(blocks),
            stops[0] if stops else None,
            sequence.is_ready,
            sequence.rank,
        )
        return Entry(view, resume, blocks)

    def admit(self, sequence: Sequence, entry: Entry) -> Copy | None:
        """Let a sequence take over what was found; the copy that restores its state, if any."""
        self.cache.share(entry.block_ids)
        sequence.block_ids += entry.block_ids
        sequence.published = len(entry.block_ids)
        [slot] = self._slots.take(1)
        sequence.state_slot = slot
        sequence.admissions += 1
        if entry.resume is None:
            source: int | None = self._forks.start(sequence)
        else:
            source = self._resume(sequence, entry.resume)
        if sequence.leader is not None:
            self._forks.leave(sequence)
        if self.exchange is not None:
            taken = self.exchange.admitted(sequence, len(entry.block_ids))
            if sequence.admissions == 1:
                sequence.note_taken(taken, self.policy.block_tokens)
        return None if source is None else Copy(source, slot)

    def may_fork(self, leader: Sequence) -> bool:
        """Whether a first sample can be forked: there are slots for that, and it just arrived."""
        return self._counts.snapshots > 0 and not leader.admissions

    def grow(self, sequence: Sequence, count: int) -> Copy | None:
        """Take new blocks; the copy that fills the first one, if another block's content goes on.

        Args:
            sequence: runs.
            count: blocks to take.
        """
        new = self.cache.take(count)
        sequence.block_ids += new
        source, sequence.clone_source = sequence.clone_source, None
        return None if source is None else Copy(source, new[0])

    def save(self, sequence: Sequence, end: int) -> Saved | None:
        """Set a slot apart for the state behind ``end`` launched rows, if someone needs it."""
        is_stop = bool(sequence.stops) and sequence.stops[0] == end
        if is_stop:
            del sequence.stops[0]
        if not is_stop and end < sequence.prompt_tokens:
            return None
        is_fork = sequence.fork_due and end == sequence.prompt_tokens - 1
        if not is_fork and not self._is_boundary(sequence, end):
            return None
        slot = self.cache.reserve_snapshot()
        if slot is None:
            sequence.fork_due = sequence.fork_due and not is_fork
            return None
        return Saved(sequence, sequence.admissions, end, slot, is_fork)

    def keep(self, saved: Saved, *, succeeded: bool) -> None:
        """The step that made a copy has ended: publish the copy, or give its slot back."""
        sequence = saved.sequence
        is_present = not sequence.is_gone and sequence.admissions == saved.admission
        if not succeeded or not is_present or sequence.state_slot is None:
            self.cache.drop_snapshot(saved.slot)
        elif saved.is_fork:
            self._forks.make(saved.sequence, saved.tokens, saved.slot)
        elif not sequence.is_exact:
            self.cache.drop_snapshot(saved.slot)
        else:
            assert sequence.chain is not None  # it has keys of all blocks that are committed
            key = sequence.chain.keys[saved.tokens // self.policy.block_tokens - 1]
            self.cache.publish_snapshot(key, saved.slot)
            if self.exchange is not None:
                self.exchange.kept_state(sequence, saved.tokens)

    def publish(self, sequence: Sequence, accepted: tuple[int, ...] = ()) -> None:
        """Let others find the blocks whose rows are all computed.

        Args:
            sequence: runs.
            accepted: drafts that count as committed, and are its next tokens.
        """
        whole = sequence.committed // self.policy.block_tokens
        if sequence.chain is None or not sequence.is_exact or whole <= sequence.published:
            return
        sequence.chain.extend([*sequence.tokens, *accepted] if accepted else sequence.tokens)
        for number in range(sequence.published, whole):
            self.cache.publish(sequence.chain.keys[number], sequence.block_ids[number])
        sequence.published = whole
        if self.exchange is not None:
            self.exchange.published(sequence)

    def release(self, sequence: Sequence) -> None:
        """Take back what a sequence holds; blocks that others may find stay cached."""
        self.cache.release(sequence.block_ids)
        sequence.block_ids = ()
        if sequence.state_slot is not None:
            self._slots.release([sequence.state_slot])
            sequence.state_slot = None
        sequence.computed = sequence.committed = sequence.published = 0
        sequence.clone_source = None
        sequence.stops.clear()

    def leave(self, sequence: Sequence) -> None:
        """A sequence is gone: release what it holds, and what was kept for it alone.

        The computed prompt that it leaves for other samples stays until the last one has started.
        """
        if self.exchange is not None:
            self.exchange.leave(sequence)
        self.release(sequence)
        sequence.is_gone = True
        if sequence.leader is not None:
            self._forks.leave(sequence)

    def make_room(self) -> None:
        """Give up all blocks that are held for convenience, none of a running sequence."""
        self._forks.drop_all()
        if self.exchange is not None:
            self.exchange.make_room()

    def check_integrity(self, sequences: Iterable[Sequence], saved: Iterable[Saved] | None) -> None:
        """Compare the books with what everybody says to hold.

        Args:
            sequences: all in work.
            saved: copies whose steps have not ended; None: not known.

        Raises:
            EngineError: a block or slot is lost, or held otherwise than counted.
        """
        sequences = list(sequences)
        forks, exchange = self._forks.living, self.exchange
        held = exchange.held_blocks() if exchange else []
        self.cache.check_integrity(
            [*(one.block_ids for one in sequences), *(one.block_ids for one in forks), *held],
            [[item.state_slot] for item in sequences if item.state_slot is not None],
        )
        if saved is None:
            return
        copies = {*(item.slot for item in saved), *(fork.state_slot for fork in forks)}
        copies |= exchange.reserved_slots() if exchange else set()
        if copies != self.cache.reserved_slots:
            raise EngineError(
                f"state slots {sorted(self.cache.reserved_slots)} are set apart for copies, "
                f"{sorted(copies)} are accounted for"
            )

    def _resume(self, sequence: Sequence, resume: Resume) -> int | None:
        """Start behind what is cached; the slot to restore the state from, if any."""
        sequence.computed = sequence.committed = resume.start
        sequence.cached_end = resume.cached_tokens
        sequence.valid_start = resume.valid_start
        sequence.is_exact = resume.is_exact
        sequence.stops = self.policy.stops(sequence, resume)
        if sequence.fork_due and resume.start >= sequence.prompt_tokens - 1:
            # The others find in the cache what this one found.
            sequence.fork_due = False
        if sequence.cached_tokens is None:
            sequence.cached_tokens = resume.cached_tokens
            sequence.replayed_tokens = resume.replayed_tokens
            self.cache.count_lookup(sequence.published)
        if resume.restore_at is None:
            return None
        assert sequence.chain is not None
        key = sequence.chain.keys[resume.restore_at // self.policy.block_tokens - 1]
        slot = self.cache.snapshot_slot(key)
        assert slot is not None
        return slot

    def _is_boundary(self, sequence: Sequence, end: int) -> bool:
        """Whether the state behind so many rows is one that others can restore, and is new."""
        size = self.policy.block_tokens
        if end % size or end < sequence.cached_end or not sequence.is_exact:
            return False
        if sequence.chain is None:
            return False
        known = sequence.chain.keys
        return end // size > len(known) or self.cache.snapshot_slot(known[end // size - 1]) is None
