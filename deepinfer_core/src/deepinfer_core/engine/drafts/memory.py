"""How much memory do drafts need beside the pages? It is what ``stage`` allocates."""

from __future__ import annotations

from deepinfer_core.config.settings import Settings

__all__ = ["laws_bytes", "tokens_bytes"]

_LAW_BYTES = 4
_TOKEN_BYTES = 8


def laws_bytes(settings: Settings, vocabulary: int) -> int:
    """One int32 row of the vocabulary for each draft of each sequence that runs, and of padding.

    0 where drafts are not accepted by their laws.
    """
    if settings.speculation.rule != "ratio":
        return 0
    return _LAW_BYTES * _places(settings) * settings.drafts * vocabulary


def tokens_bytes(settings: Settings, longest: int) -> int:
    """An int64 for each position of each sequence that runs, and of padding, and one more.

    Args:
        settings: of an engine whose drafter reads tokens.
        longest: tokens of a text.
    """
    return _TOKEN_BYTES * _places(settings) * (longest + 1)


def _places(settings: Settings) -> int:
    return settings.engine.max_num_seqs + 1
