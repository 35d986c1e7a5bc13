"""Who gets rows, blocks and slots in the next step?

Everything goes by rank (``schedule.rank``):

* A running sequence with one pending row has that row reserved, and the drafts behind it. Prompts
  share what is left of the rows, first in rank first, in chunks; a waiting prompt that goes before
  a running one is served before it. Steps have room for the drafts of as many sequences as may run,
  so drafts leave every prompt that may run as many rows as they take themselves.
* Blocks are taken as they are needed. A sequence that finds none takes them from the last running
  sequence behind it, which then waits and is resumed later; one with nobody behind it merely skips
  the step. The first running sequence therefore always has its blocks. Drafts take free blocks
  only, and leave those that other decoding sequences need for the row that is due.
* A waiting sequence is admitted when the blocks of all its known tokens and of one more are free,
  besides those that running sequences need for the same. Nothing that is ready overtakes the first
  that is ready; what does not fit holds up what would, or large requests would starve.
* A waiting sequence never preempts, whatever its rank. Preemption throws away computed rows, and
  two sequences that may take from each other could do so for ever. It need not: while the first in
  rank waits nobody else is admitted, the first of the running ones always proceeds, so they end one
  after the other and what they leave goes to the first in rank.

Hence the first in rank of all ends after finitely many steps, then the next. See
``docs/scheduling.md`` for the bound.

If chunks and decode rows may not share a step, steps of both kinds take turns while there is work
for both. In either kind all running sequences claim blocks in order of rank, in the step or not: a
turn never hands a block to somebody that one earlier in rank needs for its next rows.
"""

from __future__ import annotations

from itertools import accumulate

from deepinfer_core.schedule.snapshot import Decision, SequenceView, Share, Snapshot, StepKind

__all__ = ["decide", "options"]

_NOTHING = Decision((), (), (), "idle")


def decide(snapshot: Snapshot) -> Decision:
    """Choose the next step; the same snapshot gives the same decision.

    Returns:
        A decision that keeps every limit. It has no shares only if no sequence is ready, or if
        what is needed is held by sequences with nothing pending; it then changes nothing.

    Raises:
        ValueError: a chunk would have to end before its first row, see ``SequenceView.stop_at``.
    """
    if snapshot.limits.mixes:
        return _Round(snapshot, chunks=True, decodes=True).decide()
    prefill, decode = options(snapshot)
    if prefill.shares and not (decode.shares and snapshot.last_kind == "prefill"):
        return prefill
    return decode


def options(snapshot: Snapshot) -> tuple[Decision, Decision]:
    """What a step of chunks only and a step of decode rows only would be.

    A group whose members must agree on the kind of a step votes with these (``schedule.votes``).
    One of the two has shares whenever ``decide`` of mixed steps would.

    Returns:
        The prefill step and the decode step; one that would have no rows changes nothing.
    """
    has_chunks = bool(snapshot.waiting)
    if not has_chunks:
        has_chunks = any(view.known_tokens - view.computed_tokens > 1 for view in snapshot.running)
    prefill = _Round(snapshot, chunks=True, decodes=False).decide() if has_chunks else _NOTHING
    return prefill, _Round(snapshot, chunks=False, decodes=True).decide()


class _Round:
    """The working state of one decision.

    Args:
        snapshot: the engine's state.
        chunks: whether prompts get rows and waiting sequences are admitted.
        decodes: whether sequences with one pending row get it.
    """

    def __init__(self, snapshot: Snapshot, *, chunks: bool, decodes: bool) -> None:
        self.snapshot = snapshot
        self.limits = snapshot.limits
        self.chunks = chunks
        self.decodes = decodes
        self.free_blocks = snapshot.free_blocks
        self.end = len(snapshot.running)
        """Running sequences from here on are preempted, or end by themselves."""
        self.next_waiting = 0 if chunks else len(snapshot.waiting)
        self.prompt_rows = self.limits.max_rows
        self.owed_blocks = 0
        """Blocks that running sequences lack for their known tokens and the next one."""
        self.due_blocks = 0
        """Blocks that decoding sequences still need for the row that is due."""
        self.gains: list[int] | None = None
        self.preempted: list[int] = []
        self.admitted: list[int] = []
        self.shares: list[Share] = []
        self.chunk_count = 0

    def decide(self) -> Decision:
        self._look_ahead()
        self._serve_running()
        self._admit(None)
        return Decision(
            tuple(self.preempted), tuple(self.admitted), tuple(self.shares), self._kind()
        )

    def _kind(self) -> StepKind:
        if not self.shares:
            return "idle"
        if not self.chunk_count:
            return "decode"
        return "prefill" if self.chunk_count == len(self.shares) else "mixed"

    def _look_ahead(self) -> None:
        """Count decode rows, and the blocks to leave alone if somebody may be admitted."""
        block_tokens = self.limits.block_tokens
        admits = self.next_waiting < len(self.snapshot.waiting)
        decode_rows = 0
        for _, known, computed, block_count, _, _, _, _, drafts in self.snapshot.running:
            if known - computed == 1:
                decode_rows += 1 + drafts
                self.due_blocks += known > block_count * block_tokens
            if admits and known > computed and known >= block_count * block_tokens:
                self.owed_blocks += self.limits.blocks_for(known + 1) - block_count
        if self.decodes:
            self.prompt_rows -= decode_rows

    def _serve_running(self) -> None:
        # A hot loop: most sequences decode and have room in their last block.
        block_tokens, shares, decodes = self.limits.block_tokens, self.shares, self.decodes
        for place, view in enumerate(self.snapshot.running):
            if place >= self.end:
                return
            number, known, computed, block_count, _, _, _, _, drafts = view
            if known - computed == 1:
                if known + drafts > block_count * block_tokens:
                    self._serve_decode(place, view)
                elif decodes:
                    shares.append(Share(number, 1 + drafts, 0))
            elif known > computed:
                self._admit(view)
                self._serve_chunk(place, view)

    def _serve_chunk(self, place: int, view: SequenceView) -> None:
        rows = self._serve(place, view, self._chunk_rows(view), self.chunks)
        self.prompt_rows -= rows
        if self.chunks and rows:
            self.chunk_count += 1

    def _chunk_rows(self, view: SequenceView) -> int:
        """Rows of a sequence's next chunk as far as blocks allow."""
        _, known, computed, _, _, stop_at, _, _, _ = view
        end = known if stop_at is None else min(known, stop_at)
        if end <= computed:
            raise ValueError(f"no chunk can start at {computed} and end by {stop_at}: {view}")
        return min(end - computed, self.prompt_rows)

    def _serve_decode(self, place: int, view: SequenceView) -> None:
        """Let a sequence claim a block for the row that is due or for its drafts."""
        _, known, _, block_count, _, _, _, _, drafts = view
        due = int(known > block_count * self.limits.block_tokens)
        self.due_blocks -= due
        if not self.decodes:
            drafts = 0
        else:
            if due:
                self._make_room(place, view, 1)
            spare = max(self.free_blocks - due - self.due_blocks, 0)
            room = (block_count + due + spare) * self.limits.block_tokens - known
            drafts = min(drafts, room)
        self._claim(view, 1 + drafts, self.decodes)

    def _serve(self, place: int, view: SequenceView, rows: int, is_in_step: bool) -> int:
        """Let a running sequence claim blocks for ``rows`` rows; for how many it got them.

        Only one in the step takes blocks from those behind it; the others claim what is free.
        """
        if is_in_step and rows > 0:
            self._make_room(place, view, rows)
        return self._claim(view, rows, is_in_step)

    def _claim(self, view: SequenceView, rows: int, is_in_step: bool) -> int:
        number, _, computed, block_count, _, _, _, _, _ = view
        rows = min(rows, (block_count + self.free_blocks) * self.limits.block_tokens - computed)
        if rows <= 0:
            return 0
        new_blocks = max(0, self.limits.blocks_for(computed + rows) - block_count)
        self.free_blocks -= new_blocks
        self.owed_blocks -= new_blocks
        if is_in_step:
            self.shares.append(Share(number, rows, new_blocks))
        return rows

    def _make_room(self, place: int, view: SequenceView, rows: int) -> None:
        """Preempt from the last in rank until ``rows`` rows fit, if one row at least can be won."""
        base = view.computed_tokens
        missing = self.limits.blocks_for(base + rows) - view.block_count
        if missing <= self.free_blocks:
            return
        running = self.snapshot.running
        gains = self._gains()
        behind = gains[place + 1] - gains[self.end]
        is_alone_in_the_end = place == 0 and all(
            item.known_tokens > item.computed_tokens for item in running
        )
        needed = self.limits.blocks_for(base + 1) - view.block_count
        if needed > self.free_blocks + behind and not is_alone_in_the_end:
            return
        while missing > self.free_blocks and self.end > place + 1:
            self.end -= 1
            victim = running[self.end]
            if victim.known_tokens > victim.computed_tokens:
                self.preempted.append(victim.sequence_id)
                self.free_blocks += victim.idle_blocks
        if is_alone_in_the_end and self.end == 1:
            # Whatever the others shared among themselves is free now, too.
            self.free_blocks = self.limits.usable_blocks - view.block_count

    def _gains(self) -> list[int]:
        """At each place, the blocks that preempting everybody from there on is sure to free."""
        if self.gains is None:
            each = [
                view.idle_blocks if view.known_tokens > view.computed_tokens else 0
                for view in self.snapshot.running
            ]
            self.gains = [*accumulate(reversed(each), initial=0)][::-1]
        return self.gains

    def _admit(self, before: SequenceView | None) -> None:
        """Admit waiting sequences in order, only those that go before a running one if given."""
        waiting = self.snapshot.waiting
        while self.next_waiting < len(waiting) and not self.preempted:
            view = waiting[self.next_waiting]
            if view.is_ready:
                if before is not None and view.rank >= before.rank:
                    return
                if not self._has_place(view):
                    self.next_waiting = len(waiting)
                    return
                self._start(view)
            self.next_waiting += 1

    def _has_place(self, view: SequenceView) -> bool:
        running = len(self.snapshot.running) + len(self.admitted)
        if running >= self.limits.max_sequences or len(self.admitted) >= self.snapshot.free_slots:
            return False
        if not self.prompt_rows:
            return False
        # A lone sequence is always let in; the limits say that it fits.
        lacking = self.limits.lacking(view.known_tokens, view.block_count)
        return not running or lacking + view.idle_blocks + self.owed_blocks <= self.free_blocks

    def _start(self, view: SequenceView) -> None:
        self.admitted.append(view.sequence_id)
        self.free_blocks -= view.idle_blocks
        self.owed_blocks += self.limits.lacking(view.known_tokens, view.block_count)
        rows = self._claim(view, self._chunk_rows(view), True)
        self.prompt_rows -= rows
        self.chunk_count += rows > 0
