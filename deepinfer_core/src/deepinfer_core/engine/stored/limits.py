"""How long does an engine wait for a store, and how much does it give it?"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["StoreLimits", "match_timeout_s"]

_HERE_S = 0.005
_REMOTE_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """What the settings say; see ``KvStoreSettings``.

    Attributes:
        match_timeout_s: until it must be known how much of a prefix is there.
        fetch_timeout_s: until it must have come.
        patience: how many times as long as computing a prefix may fetching it take.
        backlog_blocks: finished blocks that wait to be copied, at most.
        step_blocks: blocks that are copied from the device in one step, at most.
        state_retention_s: a state is taken for stored for no longer than it is kept unused.
        most_fetches: prefixes that are fetched at once.
    """

    match_timeout_s: float = _HERE_S
    fetch_timeout_s: float = 2.0
    patience: float = 1.0
    backlog_blocks: int = 256
    step_blocks: int = 16
    state_retention_s: float = 180.0
    most_fetches: int = 64


def match_timeout_s(asked: float | None, *, is_remote: bool) -> float:
    """How long a request waits to learn how much of it is stored.

    Args:
        asked: what the settings say; None: it is up to where the store is.
        is_remote: other machines answer.
    """
    if asked is not None:
        return asked
    return _REMOTE_S if is_remote else _HERE_S
