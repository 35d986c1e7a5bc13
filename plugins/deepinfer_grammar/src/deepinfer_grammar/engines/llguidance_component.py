"""How does llguidance make masks of rules?

Its own reader of JSON Schema is not used, for the same reason as with xgrammar: it has its own idea
of what to leave out. It gets the same rules, one character a terminal.
"""

from __future__ import annotations

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
from deepinfer_grammar.engines.descent import levels_of, with_levels
from deepinfer_grammar.engines.llguidance_text import as_lark
from deepinfer_grammar.errors import GrammarFault
from deepinfer_grammar.front import grammar_rules

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["LlguidanceGrammar", "build"]

_MOST_SYMBOLS = 65_000
"""Terminals and rules, after repetitions are written out; more are a defect to llguidance."""

_MANY_SYMBOLS = "symbols"
"""What the reason names if there are more."""

_NO_TOKEN = "NoExtensionBias"
"""What the reason begins with if the vocabulary has no token for how the text goes on."""

_FIXED_BYTES, _BYTES_A_BYTE = 48_000, 64
"""Memory of a grammar, and of each byte of its rules, which llguidance does not tell: of thirteen
schemas of the test data each was opened many times, and took 40 kB and 44 to 64 bytes a byte."""


class LlguidanceGrammar(Grammar):
    """Grammars by llguidance."""

    def __init__(self) -> None:
        self._tokens: tuple[GrammarVocabulary, Any] | None = None

    @property
    def properties(self) -> Properties:
        """Masks depend on the grammar and the text alone."""
        return Properties(batch_invariant="always", deterministic="always", graph_safe="always")

    @property
    def kinds(self) -> frozenset[str]:
        """All."""
        return frozenset(GRAMMAR_KINDS)

    def compile(self, grammar: GrammarText, vocabulary: GrammarVocabulary) -> bytes:
        """See ``Grammar.compile``."""
        rules = grammar_rules(grammar, vocabulary)
        return f"{levels_of(rules)}\n{as_lark(rules)}".encode()

    def open(self, compiled: bytes, vocabulary: GrammarVocabulary) -> CompiledGrammar:
        """See ``Grammar.open``."""
        import llguidance

        tokenizer = self._tokenizer(vocabulary)
        levels, _, lark = compiled.decode().partition("\n")
        native = with_levels(
            int(levels),
            lambda: llguidance.LLMatcher(
                tokenizer, llguidance.LLMatcher.grammar_from_lark(lark), log_level=0
            ),
        )
        if native.is_error():
            reason = _first_line(native.get_error())
            limit = f", which counts at most {_MOST_SYMBOLS:,} symbols in them"
            raise GrammarFault(
                "#: the rules of the grammar are not such as grammar.llguidance can take"
                f"{limit if _MANY_SYMBOLS in reason else ''}",
                hint="make it smaller or simpler, or take grammar.xgrammar",
            ) from RuntimeError(reason)
        found = _Compiled(native, vocabulary, _FIXED_BYTES + _BYTES_A_BYTE * len(compiled))
        check_beginning(found.matcher(), vocabulary)
        return found

    def _tokenizer(self, vocabulary: GrammarVocabulary) -> Any:
        """The tokenizer of the vocabulary that was asked for last."""
        import llguidance

        if self._tokens is None or self._tokens[0] is not vocabulary:
            wrapper = llguidance.TokenizerWrapper(_Tokens(vocabulary))
            native = llguidance.LLTokenizer(
                wrapper, n_vocab=len(vocabulary.pieces), eos_token=list(vocabulary.end_ids)
            )
            self._tokens = (vocabulary, native)
        return self._tokens[1]


class _Tokens:
    """What llguidance asks of a tokenizer; control tokens have names that no text holds."""

    def __init__(self, vocabulary: GrammarVocabulary) -> None:
        ends = set(vocabulary.end_ids)
        self.bos_token_id = None
        self.eos_token_id = vocabulary.end_ids[0]
        self.special_token_ids = [
            token for token, piece in enumerate(vocabulary.pieces) if not piece or token in ends
        ]
        special = set(self.special_token_ids)
        self.tokens = [
            f"<control_{token}>".encode() if token in special else piece
            for token, piece in enumerate(vocabulary.pieces)
        ]
        self._bytes = {
            piece[0]: token
            for token, piece in enumerate(vocabulary.pieces)
            if len(piece) == 1 and token not in special
        }

    def __call__(self, text: bytes) -> list[int]:
        """Any tokens that spell the text will do: only forced text is ever asked for."""
        return [self._bytes[byte] for byte in text if byte in self._bytes]


def _first_line(text: str) -> str:
    """What is wrong; behind it llguidance writes text and grammar, which no log may hold."""
    return (text.strip().splitlines() or ["no reason given"])[0]


class _Compiled(CompiledGrammar):
    def __init__(self, native: Any, vocabulary: GrammarVocabulary, size_bytes: int) -> None:
        self._native = native
        self._vocabulary = vocabulary
        self._size_bytes = size_bytes

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def matcher(self) -> GrammarMatcher:
        return _Matcher(self._native.deep_copy(), self._vocabulary)


class _Matcher(GrammarMatcher):
    """A matcher of llguidance, which ends for good at the first token that it does not allow."""

    __slots__ = ("_ended", "_length", "_native", "_vocabulary")

    def __init__(self, native: Any, vocabulary: GrammarVocabulary) -> None:
        self._native = native
        self._vocabulary = vocabulary
        self._ended = False
        self._length = 0

    def accept(self, token_id: int) -> bool:
        if self._ended:
            return False
        if token_id in self._vocabulary.end_ids:
            self._ended = bool(self._native.is_accepting())
            return self._ended
        if self._native.validate_tokens([token_id]) == 1 and self._native.consume_token(token_id):
            self._length += 1
            return True
        self._check()
        return False

    def rollback(self, count: int) -> None:
        if count and self._ended:
            self._ended, count = False, count - 1
        if count:
            self._native.rollback(count)
            self._length -= count

    def fill_mask(self, mask_RW: npt.NDArray[np.int32], row: int) -> None:
        if self._ended:
            mask_RW[row] = -1
            return
        words = mask_RW[row]
        self._native.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        if self._native.is_error():
            mask_RW[row] = 0  # no token goes on, if it is not worse than that
            self._check()

    def _check(self) -> None:
        """A limit of the engine ends a matcher for good, as does the lack of a token to go on."""
        reason = _first_line(self._native.get_error()) if self._native.is_error() else ""
        if reason and not reason.startswith(_NO_TOKEN):
            raise GrammarFault(
                f"a text of the grammar can be read in too many ways for grammar.llguidance behind"
                f" {self._length} tokens",
                hint="make the grammar less ambiguous, or take grammar.xgrammar",
            ) from RuntimeError(reason)


def build(options: None, context: BuildContext) -> Grammar:
    """Build the component."""
    return LlguidanceGrammar()
