"""Where did the cache entries of prompts come from, by class of traffic?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from deepinfer_core.engine.outputs import Usage
from deepinfer_core.telemetry.board import Board
from deepinfer_core.telemetry.metric_list import PROMPT_SOURCES, STATE_PLACES

__all__ = ["PromptSources", "source_labels"]


def source_labels(classes: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Labels of ``prompt_source_tokens_total`` for classes of traffic."""
    return tuple(product(classes, PROMPT_SOURCES))


class PromptSources:
    """Counts prompts of requests that ended; whoever calls holds the board's lock.

    Args:
        board: has the series of the classes.
        classes: of traffic.
    """

    def __init__(self, board: Board, classes: Sequence[str]) -> None:
        self._tokens = {
            labels: board.number("prompt_source_tokens_total", *labels)
            for labels in source_labels(classes)
        }
        self._states = {place: board.number("prompt_states_total", place) for place in STATE_PLACES}

    def count(self, usage: Usage, retention: str) -> None:
        """A request ended: each token of its prompt counts once.

        What came from a store lies behind what was in memory, and what is fed again behind both.
        """
        for source, tokens in zip(PROMPT_SOURCES, _tokens(usage), strict=True):
            self._tokens[retention, source].value += tokens
        if usage.cached_tokens:
            self._states[_place(usage)].value += 1


def _tokens(usage: Usage) -> tuple[int, int, int, int, int]:
    """In the order of ``PROMPT_SOURCES``."""
    kept = usage.cached_tokens - usage.replayed_tokens
    host = min(kept, usage.cached_tokens - usage.stored_tokens)
    peer = min(kept - host, usage.peer_tokens)
    store = kept - host - peer
    return usage.prompt_tokens - usage.cached_tokens, host, store, peer, usage.replayed_tokens


def _place(usage: Usage) -> str:
    if usage.replayed_tokens:
        return "missed"
    return "peer" if usage.has_peer_state else "local"
