"""Which grammars were compiled before, which failed, and which are known to be slow?

What was compiled is kept by content, the latest up to a sum of sizes. What failed is told again at
once: for good if the grammar itself is wrong, for a while if a limit was passed, which the next
attempt may keep. Of failures only digests of the grammars are kept.
"""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeVar

from deepinfer_core.errors import UnsupportedGrammar
from deepinfer_core.interfaces.grammar import CompiledGrammar, GrammarText

__all__ = ["FORGET_S", "MOST_FAILURES", "GrammarMemory"]

FORGET_S = 60.0
"""How long a grammar is not tried again that passed a limit of time or memory."""

MOST_FAILURES = 4096
"""Failures that are remembered, with messages of some hundred characters: about two megabytes."""


V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class _Failure:
    message: str
    hint: str
    until_s: float


class GrammarMemory:
    """What is known of grammars that are not being compiled. Whoever uses it holds a lock.

    Args:
        cache_bytes: of compiled grammars that are kept, in the memory that they hold.

    Attributes:
        kept_bytes: of those that are kept.
    """

    def __init__(self, cache_bytes: int) -> None:
        self._cache_bytes = cache_bytes
        self._compiled: OrderedDict[GrammarText, tuple[CompiledGrammar, int]] = OrderedDict()
        self._failed: OrderedDict[bytes, _Failure] = OrderedDict()
        self._slow: OrderedDict[bytes, int] = OrderedDict()
        self.kept_bytes = 0

    def compiled(self, grammar: GrammarText) -> CompiledGrammar | None:
        """One that was compiled and is kept; it was asked for last from now on."""
        if grammar not in self._compiled:
            return None
        self._compiled.move_to_end(grammar)
        return self._compiled[grammar][0]

    def failure(self, grammar: GrammarText, now_s: float) -> UnsupportedGrammar | None:
        """Why one failed, as a new error; None: it did not, or may be tried again."""
        key = _digest(grammar)
        found = self._failed.get(key)
        if found is None:
            return None
        if found.until_s <= now_s:
            del self._failed[key]
            return None
        self._failed.move_to_end(key)
        return UnsupportedGrammar(found.message, hint=found.hint)

    def turns(self, grammar: GrammarText) -> int:
        """Turns that one is known to need more than, see ``grammar_turns``."""
        return self._slow.get(_digest(grammar), 0)

    def keep(self, grammar: GrammarText, compiled: CompiledGrammar, size_bytes: int) -> None:
        """Keep one in place of those that were asked for longest ago."""
        if size_bytes > self._cache_bytes:
            return
        _, before_bytes = self._compiled.pop(grammar, (None, 0))
        self._compiled[grammar] = (compiled, size_bytes)
        self.kept_bytes += size_bytes - before_bytes
        while self.kept_bytes > self._cache_bytes:
            _, (_, freed_bytes) = self._compiled.popitem(last=False)
            self.kept_bytes -= freed_bytes

    def fail(
        self, grammar: GrammarText, error: UnsupportedGrammar, until_s: float = math.inf
    ) -> None:
        """Remember why one failed.

        Args:
            grammar: which.
            error: why.
            until_s: when it may be tried again; left out: never.
        """
        _put(self._failed, _digest(grammar), _Failure(error.message, error.hint, until_s))

    def slow(self, grammar: GrammarText, turns: int) -> None:
        """Remember that so many turns were not enough for one."""
        _put(self._slow, _digest(grammar), turns)


def _digest(grammar: GrammarText) -> bytes:
    parts = (grammar.kind, grammar.root, grammar.text)
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        found.update(len(data).to_bytes(8, "little") + data)
    return found.digest()


def _put(among: OrderedDict[bytes, V], key: bytes, value: V) -> None:
    among[key] = value
    among.move_to_end(key)
    while len(among) > MOST_FAILURES:
        among.popitem(last=False)
