"""How does xgrammar make masks of rules?

Its own readers of JSON Schema and regular expressions are not used: they pass over what they do not
know. It gets rules only, and its token info has no text for control tokens, so that no mask offers
one that the rules do not name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deepinfer_core.interfaces.component import Properties
from deepinfer_core.interfaces.grammar import (
    GRAMMAR_KINDS,
    CompiledGrammar,
    Grammar,
    GrammarMatcher,
    GrammarText,
    GrammarVocabulary,
)
from deepinfer_core.plugin import BuildContext

from deepinfer_grammar.beginning import check_beginning
from deepinfer_grammar.engines.xgrammar_text import as_xgrammar
from deepinfer_grammar.errors import GrammarFault
from deepinfer_grammar.front import grammar_rules

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["XgrammarGrammar", "build"]

_NO_TEXT = b"\xff"
"""A byte that is in no UTF-8 text: rules can name a token that begins with it, never match it."""

_WHOLE = -1
"""Bits of the last word of a mask if all of them stand for tokens; xgrammar may set the others."""


class XgrammarGrammar(Grammar):
    """Grammars by xgrammar."""

    def __init__(self) -> None:
        self._tokens: tuple[GrammarVocabulary, Any] | None = None
        self._batch: Any = None

    @property
    def properties(self) -> Properties:
        """Masks depend on the grammar and the text alone."""
        return Properties(batch_invariant="always", deterministic="always", graph_safe="always")

    @property
    def kinds(self) -> frozenset[str]:
        """All."""
        return frozenset(GRAMMAR_KINDS)

    def compile(self, grammar: GrammarText, vocabulary: GrammarVocabulary) -> bytes:
        """See ``Grammar.compile``.

        What is passed on are the rules: xgrammar's own form of a compiled grammar may be hundreds
        of times as large as the grammar, and writing it takes more memory still.
        """
        return as_xgrammar(grammar_rules(grammar, vocabulary)).encode()

    def open(self, compiled: bytes, vocabulary: GrammarVocabulary) -> CompiledGrammar:
        """See ``Grammar.open``."""
        import xgrammar

        compiler = xgrammar.GrammarCompiler(
            self._info(vocabulary), max_threads=1, cache_enabled=False
        )
        try:
            rules = xgrammar.Grammar.from_ebnf(compiled.decode(), root_rule_name="start")
            native = compiler.compile_grammar(rules)
        except RuntimeError as error:
            raise GrammarFault(
                "#: the rules of the grammar are not such as grammar.xgrammar can take",
                hint="make it smaller or simpler, or take grammar.llguidance",
            ) from error
        found = _Compiled(native, vocabulary)
        check_beginning(found.matcher(), vocabulary)
        return found

    def fill_masks(
        self,
        matchers: Sequence[GrammarMatcher],
        mask_RW: npt.NDArray[np.int32],
        rows: Sequence[int],
    ) -> None:
        """Fill rows in one call."""
        running: Sequence[Any] = matchers
        if len(running) == 1:
            running[0].fill_mask(mask_RW, rows[0])
            return
        natives = [one.native for one in running if not one.ended]
        if len(natives) < len(running):
            mask_RW[[row for one, row in zip(running, rows, strict=True) if one.ended]] = -1
            rows = [row for one, row in zip(running, rows, strict=True) if not one.ended]
        if natives:
            self._in_one_call().batch_fill_next_token_bitmask(natives, mask_RW, list(rows))
            if running[0].tail != _WHOLE:
                mask_RW[list(rows), -1] &= running[0].tail

    def _in_one_call(self) -> Any:
        """What fills several rows."""
        if self._batch is None:
            import xgrammar

            self._batch = xgrammar.BatchGrammarMatcher(max_threads=1)
        return self._batch

    def _info(self, vocabulary: GrammarVocabulary) -> Any:
        """The token info of the vocabulary that was asked for last."""
        import xgrammar

        if self._tokens is None or self._tokens[0] is not vocabulary:
            pieces = list(vocabulary.pieces)
            for token in vocabulary.end_ids:
                pieces[token] = b""
            for token in vocabulary.controls.values():
                pieces[token] = _NO_TEXT + token.to_bytes(4, "big")
            info = xgrammar.TokenizerInfo(
                pieces,
                vocab_type=xgrammar.VocabType.RAW,
                vocab_size=len(pieces),
                stop_token_ids=list(vocabulary.end_ids),
            )
            self._tokens = (vocabulary, info)
        return self._tokens[1]


class _Compiled(CompiledGrammar):
    def __init__(self, native: Any, vocabulary: GrammarVocabulary) -> None:
        self._native = native
        self._tail = (1 << len(vocabulary.pieces) % 32) - 1 or _WHOLE
        self._ends = frozenset(vocabulary.end_ids)

    @property
    def size_bytes(self) -> int:
        return int(self._native.memory_size_bytes)

    def matcher(self) -> GrammarMatcher:
        import xgrammar

        return _Matcher(xgrammar.GrammarMatcher(self._native), self._tail, self._ends)


class _Matcher(GrammarMatcher):
    """A matcher of xgrammar, and whether an end token was accepted."""

    __slots__ = ("ended", "ends", "native", "tail")

    def __init__(self, native: Any, tail: int, ends: frozenset[int]) -> None:
        self.native = native
        self.tail = tail
        self.ends = ends
        self.ended = False

    def accept(self, token_id: int) -> bool:
        if self.ended or not self.native.accept_token(token_id):
            return False
        self.ended = token_id in self.ends
        return True

    def rollback(self, count: int) -> None:
        if count:
            self.native.rollback(count)
            self.ended = False

    def fill_mask(self, mask_RW: npt.NDArray[np.int32], row: int) -> None:
        if self.ended:
            mask_RW[row] = -1
        else:
            self.native.fill_next_token_bitmask(mask_RW, row)
            if self.tail != _WHOLE:
                mask_RW[row, -1] &= self.tail


def build(options: None, context: BuildContext) -> Grammar:
    """Build the component."""
    return XgrammarGrammar()
