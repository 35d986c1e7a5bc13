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
from typing import TYPE_CHECKING, NamedTuple

from deepinfer_core.engine.grammar_request import GrammarRequest
from deepinfer_core.errors import DeepInferError, EngineError, RequestError
from deepinfer_core.interfaces.grammar import CompiledGrammar, GrammarMatcher

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Constraint", "Trigger"]


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


class _Place(NamedTuple):
    """Where a constraint stands, besides its matcher."""

    phase: str
    matched: int
    held: int


class Constraint:
    """The grammar of one sequence.

    Args:
        request: what was asked.
        compiled: its grammar, now or later.
        end_ids: tokens that end a sequence.
    """

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
        self._matcher: GrammarMatcher | None = None
        self._read = 0
        self._place = _Place("free" if self._trigger else "held", 0, 0)

    @property
    def is_settled(self) -> bool:
        """Whether its grammar was compiled, or refused."""
        return self._compiled.done()

    @property
    def failure(self) -> DeepInferError | None:
        """Why there is no grammar; None if there is one, or it is not settled."""
        error = self._compiled.exception() if self._compiled.done() else None
        if error is not None and not isinstance(error, DeepInferError):
            return EngineError(str(error))
        if error is None and self._prefix and self._compiled.done():
            try:
                self._held()
            except RequestError as refused:
                return refused
        return error

    def fill(
        self,
        output: Sequence[int],
        drafts: Sequence[int],
        mask_RW: npt.NDArray[np.int32],
        rows: Sequence[int],
    ) -> None:
        """Fill the masks behind the output, and behind each draft in turn.

        Args:
            output: all tokens drawn so far.
            drafts: tokens that may follow, of which some may not be allowed; masks behind one that
                is not allow everything, as nobody draws there.
            mask_RW: int32 masks.
            rows: row of the mask behind the output, then behind each draft; one more than drafts.

        Raises:
            EngineError: the output is not what the grammar allows.
        """
        for token in output[self._read :]:
            if not self._take(token):
                raise EngineError(f"token {token} was drawn, and the grammar does not allow it")
            self._read += 1
        self._fill_row(mask_RW, rows[0])
        kept, taken = self._place, 0
        for token, row in zip(drafts, rows[1:], strict=True):
            if taken < 0 or not self._take(token):
                taken = -1
                mask_RW[row] = -1
            else:
                self._fill_row(mask_RW, row)
        self._restore(kept)

    def _restore(self, place: _Place) -> None:
        if self._place.held > place.held:
            self._held().rollback(self._place.held - place.held)
        self._place = place

    def _take(self, token: int) -> bool:
        phase, matched, held = self._place
        if phase == "held":
            if not self._held().accept(token):
                return False
            self._place = _Place(phase, matched, held + 1)
            return True
        assert self._trigger is not None
        if token in self._ends:
            return False
        trigger = self._trigger.token_ids
        if phase == "forced":
            if token != trigger[matched]:
                return False
            matched += 1
        elif token == self._bound:
            phase, matched = "forced", 0
        else:
            matched = self._trigger.after(matched, token)
        if matched == len(trigger):
            phase = "held"
        self._place = _Place(phase, matched, held)
        return True

    def _fill_row(self, mask_RW: npt.NDArray[np.int32], row: int) -> None:
        phase, matched, _ = self._place
        if phase == "held":
            self._held().fill_mask(mask_RW, row)
            return
        assert self._trigger is not None
        words = mask_RW[row]
        if phase == "forced":
            words[:] = 0
            _set(words, self._trigger.token_ids[matched], allowed=True)
            return
        words[:] = -1
        for token in self._ends:
            _set(words, token, allowed=False)

    def _held(self) -> GrammarMatcher:
        if self._matcher is None:
            matcher = self._compiled.result().matcher()
            if not matcher.replay(self._prefix):
                raise RequestError(
                    "the text that the answer goes on from cannot begin a text of the grammar",
                    hint="give another beginning, or another grammar",
                )
            self._matcher = matcher
        return self._matcher


def _set(words: npt.NDArray[np.int32], token: int, *, allowed: bool) -> None:
    bits = words.view("uint32")
    bit = 1 << (token % 32)
    if allowed:
        bits[token // 32] |= bit
    else:
        bits[token // 32] &= 0xFFFFFFFF ^ bit
