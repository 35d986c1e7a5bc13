"""Which tokens may come next, so that a whole text belongs to a grammar?

Compiling may take seconds, so the engine does it in processes of its own: ``compile`` gives bytes,
and ``open`` makes them usable in any process with the same distributions. A matcher then follows
one text token by token. When a constraint starts (behind which tokens) is the engine's affair.

What every component keeps:

* A text is allowed only if all of the grammar holds for it. A component that cannot enforce
  something refuses the grammar; a grammar narrower than asked is allowed, a wider one never.
* Tokens without text (control tokens) are never allowed, but where the grammar names one.
* An end token is allowed exactly where the text so far is whole.

Shapes: R rows, V vocabulary, W = ceil(V / 32) mask words.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from deepinfer_core.interfaces.component import Component

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "GRAMMAR_KINDS",
    "CompiledGrammar",
    "Grammar",
    "GrammarKind",
    "GrammarMatcher",
    "GrammarText",
    "GrammarVocabulary",
]

GrammarKind = Literal["json_schema", "json_object", "regex", "ebnf", "choice", "structural_tag"]

GRAMMAR_KINDS: tuple[str, ...] = get_args(GrammarKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrammarText:
    """What a text must look like.

    Attributes:
        kind: what ``text`` is: a JSON Schema (draft 2020-12); nothing, for any JSON object; a
            regular expression that matches the whole text; EBNF; a JSON list of texts; or a
            structural tag, JSON that combines the others with control tokens.
        text: the grammar.
        root: name of the start rule of ``ebnf``.
    """

    kind: GrammarKind
    text: str = ""
    root: str = "root"


@dataclass(frozen=True, slots=True, kw_only=True)
class GrammarVocabulary:
    """The tokens of a model.

    Attributes:
        pieces: bytes of each token by id; empty for one that stands for no text.
        end_ids: tokens that end a text, at least one.
        controls: ids of control tokens that a structural tag may name, by spelling.
    """

    pieces: tuple[bytes, ...]
    end_ids: tuple[int, ...]
    controls: Mapping[str, int] = field(default_factory=dict)

    @property
    def words(self) -> int:
        """W."""
        return -(-len(self.pieces) // 32)


class GrammarMatcher(ABC):
    """Follows one text. Used by one thread at a time."""

    @abstractmethod
    def accept(self, token_id: int) -> bool:
        """Take one more token; False, and nothing happens, if the grammar does not allow it here.

        An end token is taken where the text is whole; nothing is taken behind it.
        """

    @abstractmethod
    def rollback(self, count: int) -> None:
        """Forget the last tokens, at most as many as were accepted."""

    @abstractmethod
    def fill_mask(self, mask_RW: npt.NDArray[np.int32], row: int) -> None:
        """Overwrite a row of masks with what may come next.

        Args:
            mask_RW: int32, contiguous; bit i of word w allows token 32 * w + i. Where the text is
                ended, all tokens are allowed: nothing that is drawn there is kept.
            row: which.
        """

    def replay(self, token_ids: Iterable[int]) -> bool:
        """Take tokens until one is not allowed; whether all were taken."""
        return all(self.accept(token) for token in token_ids)


class CompiledGrammar(ABC):
    """A grammar that is ready for use; may be used from several threads."""

    @abstractmethod
    def matcher(self) -> GrammarMatcher:
        """A matcher at the beginning of a text."""

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """Memory that it holds for as long as it is kept, matchers apart; an estimate will do."""


class Grammar(Component):
    """Compiles grammars and follows texts."""

    @property
    @abstractmethod
    def kinds(self) -> frozenset[str]:
        """Kinds of grammar that it takes."""

    @abstractmethod
    def compile(self, grammar: GrammarText, vocabulary: GrammarVocabulary) -> bytes:
        """Analyse a grammar; may take long.

        Called in a process that may be killed meanwhile. Before that it is interrupted by an
        exception that is no ``Exception``, at any place between two steps of the interpreter; the
        component must not catch it, and is then asked for other grammars.

        Returns:
            What ``open`` needs; equal for equal arguments.

        Raises:
            UnsupportedGrammar: the grammar is wrong, asks for what cannot be enforced, or has no
                text. The message says where, in the component's own words; what others say of it
                is the cause of the error, and goes to the log.
        """

    @abstractmethod
    def open(self, compiled: bytes, vocabulary: GrammarVocabulary) -> CompiledGrammar:
        """Make a result of ``compile`` usable.

        Called behind ``compile`` in the same process first, to see that it can be done and how long
        it takes. Then in the engine's process, by a thread that should leave the interpreter to
        others meanwhile.

        Raises:
            UnsupportedGrammar: it cannot be followed, or no token can begin a text of it.
        """

    def fill_masks(
        self,
        matchers: Sequence[GrammarMatcher],
        mask_RW: npt.NDArray[np.int32],
        rows: Sequence[int],
    ) -> None:
        """Fill one row for each matcher; all are of this component."""
        for matcher, row in zip(matchers, rows, strict=True):
            matcher.fill_mask(mask_RW, row)
