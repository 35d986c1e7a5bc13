"""How does a test bring the cache of an engine into a certain state?

Blocks and snapshots are dropped as if room had been needed, which a small test cannot wait for.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepinfer_core.cache.prefix import Match
from deepinfer_core.engine.batch import Batch

__all__ = ["CachedPrefix"]


class CachedPrefix:
    """What an idle engine has cached of one text.

    Args:
        batch: of the engine.
        tokens: the text.
        salt: of the requests that cached it.
    """

    def __init__(self, batch: Batch, tokens: Sequence[int], *, salt: str = "") -> None:
        chain = batch.pages.policy.chain(salt)
        assert chain is not None
        chain.extend(tokens)
        self._keys = chain.keys
        self._cache = batch.pages.cache
        self._block_tokens = batch.limits.block_tokens

    def found(self) -> Match:
        """Leading blocks and their snapshots."""
        return self._cache.match(self._keys)

    def drop_snapshots(self, *, behind: int = -1) -> None:
        """Drop the snapshots of all boundaries behind so many tokens."""
        for key in self._keys[max(0, behind // self._block_tokens) :]:
            self._cache._snapshots.forget(key)

    def drop_snapshot(self, tokens: int) -> None:
        """Drop the snapshot behind so many tokens, if there is one."""
        self._cache._snapshots.forget(self._keys[tokens // self._block_tokens - 1])

    def drop_block(self, number: int) -> None:
        """Drop one block, if it is there, and with it the snapshot behind it."""
        block_id = self._cache._block_of.get(self._keys[number])
        if block_id is not None:
            self._cache._evict(block_id)
