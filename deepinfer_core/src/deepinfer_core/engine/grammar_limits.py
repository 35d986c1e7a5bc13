"""How much may compiling grammars take, and who is told what it took?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

__all__ = ["GrammarMeter", "PoolLimits", "Unmetered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """How much compiling may take.

    Attributes:
        workers: grammars compiled at once; all but one of them may be slow.
        timeout_s: for one grammar, from when it is asked for.
        max_waiting: grammars that wait for their turn.
        memory_bytes: for one grammar, while it is compiled and for what comes of it.
        cache_bytes: of compiled grammars that are kept, in the memory that they hold here.
    """

    workers: int = 2
    timeout_s: float = 20.0
    max_waiting: int = 1024
    memory_bytes: int = 2 << 30
    cache_bytes: int = 1 << 30


class GrammarMeter(Protocol):
    """Counts what is done; called from several threads, and must be quick."""

    def grammar_asked(self, *, is_known: bool) -> None:
        """A request asked for a grammar, and whether it was known what becomes of it."""

    def grammar_compiled(self, elapsed_s: float) -> None:
        """Compiling one ended, with whatever outcome, after so much time in its turns."""

    def grammars_now(self, *, waiting: int, compiling: int) -> None:
        """So many wait for their turn from now on, and so many have it."""


class Unmetered:
    """Counts nothing."""

    def grammar_asked(self, *, is_known: bool) -> None:
        """See ``GrammarMeter``."""

    def grammar_compiled(self, elapsed_s: float) -> None:
        """See ``GrammarMeter``."""

    def grammars_now(self, *, waiting: int, compiling: int) -> None:
        """See ``GrammarMeter``."""
