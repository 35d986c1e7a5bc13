"""A grammar component for tests of the engine: slow, obvious, and broken in the ways asked for.

A token is one byte; the grammar is a list of whole texts (``choice``). Texts with special
meanings stand for what a component may do wrong.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from typing import TYPE_CHECKING

from deepinfer_core.errors import UnsupportedGrammar
from deepinfer_core.interfaces.component import Properties
from deepinfer_core.interfaces.grammar import (
    CompiledGrammar,
    Grammar,
    GrammarMatcher,
    GrammarText,
    GrammarVocabulary,
)
from deepinfer_core.plugin import BuildContext

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["LetterGrammar", "build"]


class LetterGrammar(Grammar):
    """Texts of a list."""

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    @property
    def properties(self) -> Properties:
        """All of them."""
        return Properties(batch_invariant="always", deterministic="always", graph_safe="always")

    @property
    def kinds(self) -> frozenset[str]:
        """Lists only."""
        return frozenset({"choice"})

    def compile(self, grammar: GrammarText, vocabulary: GrammarVocabulary) -> bytes:
        """Do what the first text says, or take the texts.

        Raises:
            UnsupportedGrammar: for ``!fault``, and for ``!kept`` with what was kept by ``!keep``.
            ValueError: for ``!break``.
        """
        first = json.loads(grammar.text)[0]
        if first == "!fault":
            raise UnsupportedGrammar("no such letters at character 3", hint="use others")
        if first == "!break":
            raise ValueError("a bug")
        if first == "!abort":
            os.abort()
        if first == "!crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if first == "!memory":
            return bytes(len(bytearray(1 << 40)))
        if first.startswith("!keep"):
            self._kept.append(bytearray(int(first.removeprefix("!keep")) << 20))
        if first == "!kept":
            raise UnsupportedGrammar(f"{sum(map(len, self._kept)) >> 20} MiB are kept")
        if first == "!large":
            return json.dumps(["x" * (1 << 20)]).encode()
        if first.startswith("!sleep"):
            time.sleep(float(first.removeprefix("!sleep")))
        if first.startswith("!deaf"):
            _sleep_deaf(float(first.removeprefix("!deaf")))
        return grammar.text.encode()

    def open(self, compiled: bytes, vocabulary: GrammarVocabulary) -> CompiledGrammar:
        """Take as long as ``!open`` says."""
        texts = json.loads(compiled)
        if texts[0].startswith("!open"):
            time.sleep(float(texts[0].removeprefix("!open")))
        return _Texts(texts, vocabulary)


def _sleep_deaf(duration_s: float) -> None:
    """Sleep so that nothing but the end of the process ends it."""
    end_s = time.monotonic() + duration_s
    while (left_s := end_s - time.monotonic()) > 0:
        with contextlib.suppress(BaseException):
            time.sleep(left_s)


class _Texts(CompiledGrammar):
    def __init__(self, texts: list[str], vocabulary: GrammarVocabulary) -> None:
        pieces = enumerate(vocabulary.pieces)
        tokens = {piece: token for token, piece in pieces if token not in vocabulary.end_ids}
        self._texts = [[tokens[bytes([byte])] for byte in text.encode()] for text in texts]
        self._vocabulary = vocabulary

    @property
    def size_bytes(self) -> int:
        return sum(8 * len(text) for text in self._texts)

    def matcher(self) -> GrammarMatcher:
        return _Matcher(self._texts, self._vocabulary)


class _Matcher(GrammarMatcher):
    def __init__(self, texts: list[list[int]], vocabulary: GrammarVocabulary) -> None:
        self._texts = texts
        self._vocabulary = vocabulary
        self._ids: list[int] = []

    def accept(self, token_id: int) -> bool:
        if token_id not in self._next():
            return False
        self._ids.append(token_id)
        return True

    def rollback(self, count: int) -> None:
        del self._ids[len(self._ids) - count :]

    def fill_mask(self, mask_RW: npt.NDArray[np.int32], row: int) -> None:
        words = mask_RW[row].view("uint32")
        words[:] = 0xFFFFFFFF if self._is_ended else 0
        for token in self._next():
            words[token // 32] |= 1 << (token % 32)

    @property
    def _is_ended(self) -> bool:
        return bool(self._ids) and self._ids[-1] in self._vocabulary.end_ids

    def _next(self) -> set[int]:
        if self._is_ended:
            return set()
        done, count = self._ids, len(self._ids)
        found = {text[count] for text in self._texts if text[:count] == done and len(text) > count}
        return found | (set(self._vocabulary.end_ids) if done in self._texts else set())


def build(options: None, context: BuildContext) -> Grammar:
    """Build the component."""
    return LetterGrammar()
