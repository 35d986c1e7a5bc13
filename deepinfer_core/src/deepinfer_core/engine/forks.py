"""Who starts at a computed prompt that was kept for other samples, and when is it given up?"""

from __future__ import annotations

from deepinfer_core.cache.prefix import PrefixCache
from deepinfer_core.engine.fork import Fork
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.schedule.snapshot import SequenceView

__all__ = ["Forks"]


class Forks:
    """The forks of one engine.

    Args:
        cache: their blocks and slots are taken from here.
        block_tokens: tokens of a block.
    """

    def __init__(self, cache: PrefixCache, block_tokens: int) -> None:
        self._cache = cache
        self._block_tokens = block_tokens
        self._leaders: dict[int, Sequence] = {}

    @property
    def living(self) -> list[Fork]:
        """All that are kept."""
        return [leader.fork for leader in self._leaders.values() if leader.fork is not None]

    def entry(self, sequence: Sequence, fork: Fork) -> tuple[SequenceView, tuple[int, ...]]:
        """What the policy sees of a sample that would start at a fork, and the blocks to share."""
        blocks = fork.block_ids[: fork.tokens // self._block_tokens]
        view = SequenceView(
            sequence.sequence_id,
            len(sequence.tokens),
            fork.tokens,
            len(blocks),
            rank=sequence.rank,
        )
        return view, blocks

    def start(self, sequence: Sequence) -> int:
        """Set where a sample starts; the slot to restore its state from."""
        assert sequence.leader is not None
        fork = sequence.leader.fork
        assert fork is not None
        sequence.computed = sequence.committed = fork.tokens
        sequence.cached_end = fork.cached_end
        sequence.valid_start = fork.valid_start
        sequence.is_exact = fork.is_exact
        sequence.published = fork.published
        whole = fork.tokens // self._block_tokens
        if whole < len(fork.block_ids):
            sequence.clone_source = fork.block_ids[whole]
        sequence.cached_tokens = fork.tokens
        self._cache.count_lookup(whole)
        return fork.state_slot

    def make(self, leader: Sequence, tokens: int, slot: int) -> None:
        """Keep what the first sample has computed, if others still want it.

        Args:
            leader: the first sample.
            tokens: rows that are computed.
            slot: holds the state behind them; given back if nobody wants it.
        """
        leader.fork_due = False
        if not leader.followers:
            self._cache.drop_snapshot(slot)
            return
        blocks = tuple(leader.block_ids[: -(-tokens // self._block_tokens)])
        self._cache.share(blocks)
        leader.fork = Fork(
            tokens=tokens,
            block_ids=blocks,
            state_slot=slot,
            published=min(leader.published, tokens // self._block_tokens),
            cached_end=leader.cached_end,
            valid_start=leader.valid_start,
            is_exact=leader.is_exact,
        )
        self._leaders[leader.sequence_id] = leader

    def leave(self, sequence: Sequence) -> None:
        """A sample no longer waits for the first one of its prompt."""
        leader, sequence.leader = sequence.leader, None
        assert leader is not None
        leader.followers -= 1
        if not leader.followers:
            leader.fork_due = False
            if leader.fork is not None:
                self._drop(leader)

    def drop_all(self) -> None:
        """Give up all of them."""
        for leader in list(self._leaders.values()):
            self._drop(leader)

    def _drop(self, leader: Sequence) -> None:
        fork, leader.fork = leader.fork, None
        assert fork is not None
        del self._leaders[leader.sequence_id]
        self._cache.release(fork.block_ids)
        self._cache.drop_snapshot(fork.state_slot)
