"""Who gets rows, blocks and slots in the next step?

First come, first served, by order of arrival:

* Every running sequence that only decodes has one row reserved. Prompts share what is left of the
  row budget, oldest first, in chunks; so decodes and chunks mix in one step.
* Blocks are taken as they are needed. A sequence that finds none takes them from the youngest
  running sequence, which then waits and is recomputed later; the youngest itself merely skips the
  step. The oldest sequence therefore always proceeds, so every sequence ends.
* A waiting sequence is admitted when the blocks of all its known tokens, of one more, and of what
  running prompts still need are free. Nothing overtakes the head of the queue.
"""

from __future__ import annotations

from collections import deque

from deepinfer_core.schedule.snapshot import Decision, SequenceView, Share, Snapshot

__all__ = ["decide"]


def decide(snapshot: Snapshot) -> Decision:
    """Choose the next step; the same snapshot gives the same decision.

    Args:
        snapshot: the engine's state. ``usable_blocks`` must hold any one sequence at its longest.

    Returns:
        A decision that keeps every limit. It has no shares only when there are no sequences.
    """
    return _Round(snapshot).decide()


class _Round:
    """The working state of one decision."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.limits = snapshot.limits
        self.free_blocks = snapshot.free_blocks
        decoding = sum(view.pending_tokens == 1 for view in snapshot.running)
        self.prompt_rows = self.limits.max_rows - decoding
        self.owed_blocks = 0
        """Blocks that running sequences will need for their known tokens and the next one."""
        self.preempted: list[int] = []
        self.admitted: list[int] = []
        self.shares: list[Share] = []

    def decide(self) -> Decision:
        self._serve_running()
        if not self.preempted:
            self._admit_waiting()
        return Decision(
            preempted=tuple(self.preempted),
            admitted=tuple(self.admitted),
            shares=tuple(self.shares),
        )

    def _serve_running(self) -> None:
        unserved = deque(self.snapshot.running)
        while unserved:
            view = unserved.popleft()
            has_row = view.pending_tokens == 1
            rows = 1 if has_row else min(view.pending_tokens, self.prompt_rows)
            while unserved and self._missing_blocks(view, rows) > self.free_blocks:
                self._preempt(unserved.pop())
            served = self._serve(view, rows)
            self.prompt_rows -= 0 if has_row else served

    def _preempt(self, victim: SequenceView) -> None:
        self.preempted.append(victim.sequence_id)
        self.free_blocks += victim.block_count

    def _admit_waiting(self) -> None:
        free_slots = self.snapshot.free_slots
        running = len(self.snapshot.running)
        for view in self.snapshot.waiting:
            if running == self.limits.max_sequences or not free_slots or not self.prompt_rows:
                return
            whole = self.limits.blocks_for(view.known_tokens + 1)
            # A lone sequence is always let in; the limits say that it fits.
            if running and whole + self.owed_blocks > self.free_blocks:
                return
            self.admitted.append(view.sequence_id)
            self.prompt_rows -= self._serve(view, min(view.pending_tokens, self.prompt_rows))
            running += 1
            free_slots -= 1

    def _serve(self, view: SequenceView, rows: int) -> int:
        """Give up to ``rows`` rows, fewer where blocks are short; how many were given."""
        held = (view.block_count + self.free_blocks) * self.limits.block_tokens
        rows = min(rows, held - view.computed_tokens)
        blocks = self._missing_blocks(view, rows) if rows > 0 else 0
        if rows > 0:
            self.shares.append(
                Share(sequence_id=view.sequence_id, row_count=rows, new_blocks=blocks)
            )
            self.free_blocks -= blocks
        whole = self.limits.blocks_for(view.known_tokens + 1)
        self.owed_blocks += max(0, whole - view.block_count - blocks)
        return max(0, rows)

    def _missing_blocks(self, view: SequenceView, rows: int) -> int:
        needed = self.limits.blocks_for(view.computed_tokens + rows)
        return max(0, needed - view.block_count)
