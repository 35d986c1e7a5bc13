"""Who waits, who runs, and who holds which blocks and slot?

Carries out what the scheduling policy decides. Everything that takes or gives back a block or a
slot is here, so that a sequence leaves with nothing, whatever state it was in.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from deepinfer_core.cache.pool import PagePool
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.errors import EngineError
from deepinfer_core.schedule.plan import StepPlan
from deepinfer_core.schedule.policy import decide
from deepinfer_core.schedule.snapshot import Limits, Snapshot

__all__ = ["Batch"]


class Batch:
    """The queues of one engine.

    Args:
        limits: fixed sizes.
        slot_count: state slots, the dummy included.

    Attributes:
        preemptions: how often a running sequence lost its blocks.
    """

    def __init__(self, limits: Limits, slot_count: int) -> None:
        self.limits = limits
        self.preemptions = 0
        self._slot_count = slot_count
        self.clear()

    def clear(self) -> None:
        """Forget all sequences and everything they hold, in whatever state an interrupt left it."""
        self._blocks = PagePool(self.limits.usable_blocks + 1, "block")
        self._slots = PagePool(self._slot_count, "state slot")
        # Both in order of arrival: ids grow with arrival, and preemption takes the youngest.
        self._running: dict[int, Sequence] = {}
        self._waiting: dict[int, Sequence] = {}

    def __len__(self) -> int:
        """Sequences in work."""
        return len(self._running) + len(self._waiting)

    def __iter__(self) -> Iterator[Sequence]:
        """All sequences in order of arrival."""
        return chain(self._running.values(), self._waiting.values())

    def add(self, sequence: Sequence) -> None:
        """Let a sequence wait behind all others."""
        self._waiting[sequence.sequence_id] = sequence

    def get(self, sequence_id: int) -> Sequence | None:
        """A sequence in work, or None."""
        return self._running.get(sequence_id) or self._waiting.get(sequence_id)

    def remove(self, sequence: Sequence) -> None:
        """Let a sequence go and take back what it holds; nothing happens if it already left."""
        self._running.pop(sequence.sequence_id, None)
        self._waiting.pop(sequence.sequence_id, None)
        self._release(sequence)

    def next_plan(self) -> StepPlan:
        """Decide the next step and take what it needs.

        Raises:
            EngineError: there are sequences, but none can proceed.
        """
        decision = decide(self._snapshot())
        for sequence_id in decision.preempted:
            self._preempt(self._running.pop(sequence_id))
        for sequence_id in decision.admitted:
            sequence = self._waiting.pop(sequence_id)
            [sequence.state_slot] = self._slots.take(1)
            self._running[sequence_id] = sequence
        steps = []
        for share in decision.shares:
            sequence = self._running[share.sequence_id]
            sequence.block_ids += self._blocks.take(share.new_blocks)
            steps.append(sequence.step(share.row_count))
        if len(self) and not steps:
            raise EngineError(f"none of {len(self)} sequences can proceed")
        return StepPlan(sequences=tuple(steps))

    def check_integrity(self) -> None:
        """Compare the books of both pools with what the sequences hold.

        Raises:
            EngineError: a block or slot is lost, or held twice.
        """
        self._blocks.check_integrity(item.block_ids for item in self)
        self._slots.check_integrity(
            [item.state_slot] for item in self if item.state_slot is not None
        )

    def _snapshot(self) -> Snapshot:
        # No step can admit more than may run, so a long queue need not be looked through.
        head = islice(self._waiting.values(), self.limits.max_sequences)
        return Snapshot(
            limits=self.limits,
            running=tuple(item.view() for item in self._running.values()),
            waiting=tuple(item.view() for item in head),
            free_blocks=self._blocks.free_count,
            free_slots=self._slots.free_count,
        )

    def _preempt(self, sequence: Sequence) -> None:
        self._release(sequence)
        self._waiting = {sequence.sequence_id: sequence, **self._waiting}
        self.preemptions += 1

    def _release(self, sequence: Sequence) -> None:
        self._blocks.release(sequence.block_ids)
        sequence.block_ids.clear()
        if sequence.state_slot is not None:
            self._slots.release([sequence.state_slot])
            sequence.state_slot = None
        sequence.computed = 0
