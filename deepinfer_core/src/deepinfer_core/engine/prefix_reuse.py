"""How much of a sequence is cached when it starts, and where do its chunks end to serve others?

Numbers only: which blocks and slots these are is the business of ``Batch``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from deepinfer_core.cache.keys import KeyChain, namespace
from deepinfer_core.cache.prefix import PrefixCache
from deepinfer_core.cache.recovery import Recovery, Resume, resume_point
from deepinfer_core.engine.sequence import Sequence

__all__ = ["CacheIdentity", "ReuseCounts", "ReusePolicy"]


class ReuseCounts(NamedTuple):
    """What was counted since the engine was made; see ``Readings``."""

    lookups: int = 0
    hit_blocks: int = 0
    evicted_blocks: int = 0
    evicted_snapshots: int = 0

    def plus(self, cache: PrefixCache) -> ReuseCounts:
        """With what a cache counted."""
        return ReuseCounts(
            self.lookups + cache.lookups,
            self.hit_blocks + cache.hit_blocks,
            self.evicted_blocks + cache.evicted_blocks,
            self.evicted_snapshots + cache.evicted_snapshots,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheIdentity:
    """What cached bytes depend on beside the tokens.

    Attributes:
        model: digest of the weights.
        layout: fingerprint of the caches' layout.
        numerics: class of results that are interchangeable.
    """

    model: bytes = b""
    layout: bytes = b""
    numerics: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReusePolicy:
    """What an engine reuses.

    Attributes:
        block_tokens: tokens of a block.
        window_tokens: keys that a row sees in its window, itself included.
        layers: windows on top of each other.
        recovery: what happens when a prefix is cached but its window keys are gone.
        is_enabled: whether requests share prefixes at all.
        truncates: whether a truncated decoder half leaves states that are exact in the encoder
            half only.
        identity: of the cached bytes.
    """

    block_tokens: int
    window_tokens: int = 1
    layers: int = 1
    recovery: Recovery = "exact"
    is_enabled: bool = True
    truncates: bool = False
    identity: CacheIdentity = CacheIdentity()

    def root(self, salt: str) -> bytes:
        """Root of the keys of all sequences that may share with those of a salt."""
        identity = self.identity
        return namespace(
            model=identity.model,
            layout=identity.layout,
            numerics=identity.numerics,
            salt=salt.encode(),
        )

    def chain(self, salt: str) -> KeyChain | None:
        """The keys of a new sequence's blocks; None if it shares nothing.

        Args:
            salt: of the users who may share.
        """
        if not self.is_enabled:
            return None
        return KeyChain(self.root(salt), self.block_tokens)

    def limit_tokens(self, sequence: Sequence) -> int:
        """Most tokens that a sequence may reuse.

        One row is fed at least, to draw from. A row whose token is to be scored is fed. The rows
        that a truncated decoder half keeps are fed, because nothing else leaves its window keys.
        """
        if sequence.is_scored:
            return 0
        limit = len(sequence.tokens) - 1
        return min(limit, sequence.keep_from) if self.truncates else limit

    def resume(self, sequence: Sequence, cached_blocks: int, snapshots: Collection[int]) -> Resume:
        """Where a sequence resumes if it is admitted now.

        Args:
            sequence: waits.
            cached_blocks: leading blocks that are cached.
            snapshots: boundaries in tokens with a snapshot.
        """
        return resume_point(
            cached_blocks=cached_blocks,
            snapshots=snapshots,
            limit_tokens=self.limit_tokens(sequence),
            recovery=self.recovery,
            block_tokens=self.block_tokens,
            window_tokens=self.window_tokens,
            layers=self.layers,
        )

    def stops(self, sequence: Sequence, resume: Resume) -> list[int]:
        """Boundaries at which a copy of the state serves others.

        They are where a snapshot was missed, the last boundary, and in front of the last row of a
        prompt that other samples wait for.

        Args:
            sequence: is admitted.
            resume: where it resumes.
        """
        wanted: set[int] = set()
        if sequence.chain is not None and resume.is_exact:
            last = self.limit_tokens(sequence) // self.block_tokens * self.block_tokens
            wanted = {resume.cached_tokens, last}
        if sequence.fork_due:
            wanted.add(sequence.prompt_tokens - 1)
        return sorted(at for at in wanted if at > resume.start)
