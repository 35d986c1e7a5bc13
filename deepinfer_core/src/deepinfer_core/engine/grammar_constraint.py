"""What may a constrained sequence draw next?

A constraint reads the tokens of the output in order and keeps no others: a sequence that lost its
blocks still has its output, and one that is behind catches up. Drafts are read and forgotten again.

Phases: *free* (until the trigger was drawn), *forced* (the trigger itself, behind the bound token),
*held* (the grammar). Before the grammar holds no end token may be drawn, or a text could end
without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from deepinfer_core.engine.grammar_request import GrammarRequest
from deepinfer_core.errors import DeepInferError, EngineError, RequestError, UnsupportedGrammar
from deepinfer_core.interfaces.grammar import CompiledGrammar, GrammarMatcher

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Constraint", "Trigger"]

_PREFIX_TOKENS = 128
"""Followed between two steps; each takes up to 0.1 ms."""


class Trigger:
    """Finds a sequence of tokens in a stream, by the tables of Knuth, Morris and Pratt.

    Args:
        token_ids: what is looked for, at least one token.
    """

    def __init__(self, token_ids: tuple[int, ...]) -> None:
        self.token_ids = token_ids
        self._back = [0] * len(token_ids)
        matched = 0
        for place in range(1, len(token_ids)):
            matched = self.after(matched, token_ids[place])
            self._back[place] = matched

    def after(self, matched: int, token: int) -> int:
        """How much of it stands at the end of the stream after one more token."""
        while matched and (matched == len(self.token_ids) or self.token_ids[matched] != token):
            matched = self._back[matched - 1]
        return matched + (self.token_ids[matched] == token)


class Constraint:
    """The grammar of one sequence.

    Args:
        request: what was asked.
        compiled: its grammar, now or later.
        end_ids: tokens that end a sequence.
    """

    __slots__ = (
        "_begun", "_bound", "_compiled", "_drafted", "_ends", "_free", "_held", "_matched",
        "_phase", "_prefix", "_read", "_trigger",
    )  # fmt: skip

    def __init__(
        self,
        request: GrammarRequest,
        compiled: Future[CompiledGrammar],
        end_ids: frozenset[int],
    ) -> None:
        self._compiled = compiled
        self._trigger = Trigger(request.trigger_ids) if request.trigger_ids else None
        self._bound = request.bound_token_id
        self._prefix = request.prefix_ids
        self._ends = end_ids
        self._phase = "free" if self._trigger else "held"
        self._matched = 0
        self._held: GrammarMatcher | None = None
        self._begun: tuple[GrammarMatcher, int] | None = None
        """Has followed so many tokens of the prefix."""
        self._read = 0
        self._free: tuple[str, int] | None = None
        self._drafted = 0

    @property
    def is_compiled(self) -> bool:
        """Whether its grammar was compiled, or refused."""
        return self._held is not None or self._compiled.done()

    @property
    def is_settled(self) -> bool:
        """Whether it can be followed, or never will be."""
        return self._held is not None or (self._compiled.done() and not self._prefix)

    def settle(self) -> DeepInferError | None:
        """Get nearer to being settled: why that is not possible; None if it may be, or is.

        A prefix is followed a part a call, so that nobody waits long for the others.
        """
        if self._held is not None:  # steps ask again and again, and a future answers slowly
            return None
        if not self._compiled.done():
            return None
        error = self._compiled.exception()
        if error is not None:
            return error if isinstance(error, DeepInferError) else EngineError(str(error))
        if self._prefix:
            try:
                self._follow_prefix(_PREFIX_TOKENS)
            except RequestError as refused:
                return refused
        return None

    def release(self) -> None:
        """Nobody wants its grammar any more."""
        self._compiled.cancel()

    def read(self, tokens: Sequence[int], first: int) -> None:
        """Follow the output, from where it was read to last.

        Args:
            tokens: prompt and output so far.
            first: where the output begins.

        Raises:
            EngineError: the output is not what the grammar allows.
        """
        for token in tokens[first + self._read :]:
            if not self._take(token):
                raise EngineError(f"token {token} was drawn, and the grammar does not allow it")
            self._read += 1

    def fill(self, mask_RW: npt.NDArray[np.int32], row: int) -> GrammarMatcher | None:
        """Fill the mask of what may come next; where the grammar holds, say instead who fills it.

        Args:
            mask_RW: int32 masks.
            row: which.
        """
        if self._phase == "held":
            return self._held or self._matcher()
        assert self._trigger is not None
        words = mask_RW[row]
        if self._phase == "forced":
            words[:] = 0
            _set(words, self._trigger.token_ids[self._matched], allowed=True)
            return None
        words[:] = -1
        for token in self._ends:
            _set(words, token, allowed=False)
        return None

    def draft(self, token: int) -> bool:
        """Follow a draft; False, and nothing happens, if it is not allowed."""
        if self._free is None:
            self._free = (self._phase, self._matched)
        was_held = self._phase == "held"
        if not self._take(token):
            return False
        self._drafted += was_held
        return True

    def forget_drafts(self) -> None:
        """Go back behind the output."""
        if self._free is not None:
            if self._drafted:
                self._matcher().rollback(self._drafted)
            (self._phase, self._matched), self._free, self._drafted = self._free, None, 0

    def _take(self, token: int) -> bool:
        phase = self._phase
        if phase == "held":
            return (self._held or self._matcher()).accept(token)
        assert self._trigger is not None
        if token in self._ends:
            return False
        trigger, matched = self._trigger.token_ids, self._matched
        if phase == "forced":
            if token != trigger[matched]:
                return False
            matched += 1
        elif token == self._bound:
            phase, matched = "forced", 0
        else:
            matched = self._trigger.after(matched, token)
        self._phase = "held" if matched == len(trigger) else phase
        self._matched = matched
        return True

    def _matcher(self) -> GrammarMatcher:
        return self._held or self._follow_prefix(len(self._prefix))

    def _follow_prefix(self, most_tokens: int) -> GrammarMatcher:
        """A matcher behind at most so many more tokens of the prefix; it is held behind all."""
        matcher, first = self._begun or (self._compiled.result().matcher(), 0)
        last = min(first + most_tokens, len(self._prefix))
        if not matcher.replay(self._prefix[first:last]):
            raise UnsupportedGrammar(
                "the text that the answer goes on from cannot begin a text of the grammar",
                hint="give another beginning, or another grammar",
            )
        if last == len(self._prefix):
            self._held, self._begun = matcher, None
        else:
            self._begun = matcher, last
        return matcher


def _set(words: npt.NDArray[np.int32], token: int, *, allowed: bool) -> None:
    bits = words.view("uint32")
    bit = 1 << (token % 32)
    if allowed:
        bits[token // 32] |= bit
    else:
        bits[token // 32] &= 0xFFFFFFFF ^ bit
