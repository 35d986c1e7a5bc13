"""What is a store to be asked for, and for how long is it worth waiting? Pure."""

from __future__ import annotations

from typing import NamedTuple

from deepinfer_core.cache.prefix import PrefixCache
from deepinfer_core.engine.prefix_reuse import ReusePolicy
from deepinfer_core.engine.sequence import Sequence

__all__ = ["Question", "is_on_its_own", "question_of"]


class Question(NamedTuple):
    """What a waiting sequence lacks.

    Attributes:
        keys: of the blocks to ask for; none if there is nothing to ask for.
        first: number in the chain of the first of them.
        cached: leading blocks that are cached.
        wants_state: computing would be spared by a state as well.
        rows: that need not be computed if all of it comes.
    """

    keys: tuple[bytes, ...]
    first: int
    cached: tuple[int, ...]
    wants_state: bool
    rows: int


def question_of(
    sequence: Sequence, cache: PrefixCache, policy: ReusePolicy, *, has_states: bool
) -> Question:
    """Compare what a sequence may reuse with what is cached.

    Args:
        sequence: waits; has a chain.
        cache: of the engine.
        policy: of the engine.
        has_states: the store has states.
    """
    chain, size = sequence.chain, policy.block_tokens
    assert chain is not None
    chain.extend(sequence.tokens)
    keys = chain.keys[: max(0, policy.limit_tokens(sequence)) // size]
    found = cache.match(keys)
    cached = len(found.block_ids)
    replayed = policy.resume(sequence, cached, found.snapshots).replayed_tokens
    wants_state = has_states and (cached < len(keys) or replayed > 0)
    if cached == len(keys) and not wants_state:
        return Question((), cached, found.block_ids, wants_state=False, rows=0)
    # A state at the end of what is cached comes with the last of these blocks.
    first = cached - 1 if has_states and replayed and cached else cached
    rows = (len(keys) - cached) * size + replayed
    return Question(tuple(keys[first:]), first, found.block_ids, wants_state, rows)


def is_on_its_own(sequence: Sequence) -> bool:
    """Whether a sequence starts from cached blocks, not from another sample of its prompt."""
    leader = sequence.leader
    if sequence.chain is None:
        return False
    return leader is None or (leader.fork is None and (leader.is_gone or not leader.fork_due))
