"""Which rows of a step are constrained, and by which masks?

Masks are made when the tokens before are known and the forward pass of the step runs already: of
all sequences at once, first behind their outputs, then behind each draft in turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from deepinfer_core.engine.grammar_child import foreign_detail
from deepinfer_core.engine.grammar_constraint import Constraint
from deepinfer_core.engine.grammar_pace import Pace
from deepinfer_core.engine.grammar_pool import GrammarPool
from deepinfer_core.engine.grammar_rows import ConstrainedRows, constrained_rows
from deepinfer_core.engine.request import Request
from deepinfer_core.engine.rows import RowRequest
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.errors import DeepInferError, EngineError, RequestError, UnsupportedGrammar
from deepinfer_core.telemetry.logs import get_logger

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from deepinfer_core.interfaces.draft_planner import AcceptanceRule

__all__ = ["NO_GRAMMARS", "Grammars"]

_WAIT_S = 0.005
"""Longest wait of an idle step for a grammar; whoever arrives meanwhile waits as long."""


class Grammars:
    """Makes constraints, and the masks of a step.

    Args:
        pool: compiles grammars; None: no component was chosen.
        end_ids: tokens that end a sequence.
        advice: what to do where there is no component.
    """

    def __init__(
        self,
        pool: GrammarPool | None = None,
        end_ids: frozenset[int] = frozenset(),
        advice: str = "",
    ) -> None:
        self._pool = pool
        self._advice = advice
        self._end_ids = end_ids
        self._pace = Pace()
        self._broken: dict[int, DeepInferError] = {}
        """Why grammars failed since ``failed`` was asked, by the number of the sequence."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of grammar that requests may ask for; none without a component."""
        return () if self._pool is None else tuple(sorted(self._pool.component.kinds))

    def constraint(self, request: Request) -> Constraint | None:
        """The constraint of a request; its grammar begins to be compiled. None: it has none.

        Raises:
            UnsupportedGrammar: there is no component for grammars of this kind.
            RequestError: a token does not exist.
        """
        asked = request.params.grammar_request
        if asked is None:
            return None
        if self._pool is None:
            raise UnsupportedGrammar(
                "structured output was asked for, and this engine has no grammar component",
                hint=self._advice,
            )
        size = len(self._pool.vocabulary.pieces)
        bound = () if asked.bound_token_id is None else (asked.bound_token_id,)
        for token in (*asked.trigger_ids, *bound, *asked.prefix_ids):
            if token >= size or token in self._end_ids:
                raise RequestError(
                    f"token {token} cannot start structured output",
                    hint=f"ids are below {size}, and not those that end a text",
                )
        compiled = self._pool.compiled(asked.text, request.options.cache_salt)
        return Constraint(asked, compiled, self._end_ids)

    def release(self, sequences: Iterable[Sequence]) -> None:
        """Let go of the grammars of sequences that end; one that nobody wants is given up."""
        for sequence in sequences:
            if sequence.constraint is not None:
                sequence.constraint.release()

    def failed(self, sequences: Iterable[Sequence]) -> list[tuple[Sequence, DeepInferError]]:
        """Sequences whose grammar was refused, or failed beside its masks, with the reason."""
        if self._pool is None:
            return []
        broken, self._broken = self._broken, {}
        found = []
        for sequence in sequences:
            constraint = sequence.constraint
            if constraint is None:
                continue
            failure = broken.get(sequence.sequence_id)
            try:
                failure = failure or constraint.settle()
            except Exception as error:  # noqa: BLE001 - components are foreign code
                failure = _failure(error)
            if failure is not None:
                found.append((sequence, failure))
        return found

    def wait(self, sequences: Iterable[Sequence]) -> bool:
        """Whether some grammar is not settled; waits a little for those that are compiled."""
        open_ones = [
            x.constraint for x in sequences if x.constraint and not x.constraint.is_settled
        ]
        if open_ones and self._pool is not None and not any(x.is_compiled for x in open_ones):
            self._pool.wait(_WAIT_S)
        return bool(open_ones)

    def cut_drafts(self, drafted: Iterable[Sequence], rule: AcceptanceRule) -> None:
        """Drop the drafts that the grammars of their sequences do not allow, and those behind them.

        Under the ratio rule the first that is not allowed stays, to be rejected: what is drawn in
        its place has to make up for how likely it was to be drafted.

        Args:
            drafted: sequences, some of which may be gone.
            rule: how drafts are accepted.
        """
        with self._pace.timed():
            for sequence in drafted:
                drafts, constraint = sequence.drafts, sequence.constraint
                if constraint is None or not drafts.ids:
                    continue
                try:
                    follow = partial(_allowed_drafts, sequence, constraint)
                    allowed = self._pace.call(constraint, follow)
                except Exception as error:  # noqa: BLE001 - components are foreign code
                    self._broken[sequence.sequence_id] = _failure(error)
                else:
                    drafts.ids = drafts.ids[: allowed + (rule == "ratio")]

    def masked(
        self, rows: tuple[RowRequest, ...], owners: list[Sequence]
    ) -> tuple[tuple[RowRequest, ...], list[tuple[Sequence, DeepInferError]]]:
        """The rows with the masks of constrained ones, and sequences that cannot go on.

        Args:
            rows: to be sampled.
            owners: of each row.
        """
        if self._pool is None:
            return rows, []
        chosen = constrained_rows(rows, owners)
        if not chosen:
            return rows, []
        import numpy as np

        count = chosen[-1].first + len(chosen[-1].places)
        mask_RW = np.empty((count, self._pool.vocabulary.words), dtype=np.int32)
        with self._pace.timed():
            self._fill(chosen, rows, mask_RW)
        self._judge(chosen, has_others=any(owner is not owners[0] for owner in owners))
        masked, masks = list(rows), list(mask_RW)
        for one in chosen:
            if one.failure is not None:
                mask_RW[one.first : one.first + len(one.places)] = -1
            for number, place in enumerate(one.places, one.first):
                # The mask is the last field; naming it takes three times as long.
                masked[place] = RowRequest._make((*rows[place][:-1], masks[number]))
        return tuple(masked), [(x.sequence, x.failure) for x in chosen if x.failure is not None]

    def _fill(
        self,
        chosen: list[ConstrainedRows],
        rows: tuple[RowRequest, ...],
        mask_RW: npt.NDArray[np.int32],
    ) -> None:
        """Fill the masks of each sequence, or note why not."""
        pace = self._pace if self._pace.is_watched else None
        for one in chosen:
            try:
                if pace is None:
                    one.constraint.read(one.sequence.tokens, one.sequence.prompt_tokens)
                else:
                    pace.call(one.constraint, partial(_read, one))
            except Exception as error:  # noqa: BLE001 - components are foreign code
                one.failure = _failure(error)
        turn, going = 0, [one for one in chosen if one.failure is None]
        while going:
            self._fill_turn(going, turn, mask_RW)
            going = [one for one in going if len(one.places) > turn + 1 and one.failure is None]
            going = [one for one in going if _drafted(one, turn, rows, mask_RW, pace)]
            turn += 1
        if turn > 1:
            for one in chosen:
                _forget_drafts(one)

    def _judge(self, chosen: list[ConstrainedRows], *, has_others: bool) -> None:
        """Note whose grammar has held up the step loop for too long."""
        counts = {one.constraint: len(one.places) for one in chosen if one.failure is None}
        if (found := self._pace.judge(counts, has_others=has_others)) is not None:
            slow, error = found
            next(one for one in chosen if one.constraint is slow).failure = error

    def _fill_turn(
        self, going: list[ConstrainedRows], turn: int, mask_RW: npt.NDArray[np.int32]
    ) -> None:
        """Fill the mask of each sequence behind so many drafts."""
        assert self._pool is not None
        matchers, filling = [], []
        for one in going:
            try:
                matcher = one.constraint.fill(mask_RW, one.first + turn)
            except Exception as error:  # noqa: BLE001 - components are foreign code
                one.failure = _failure(error)
                continue
            if matcher is not None:
                matchers.append(matcher)
                filling.append(one)
        if not matchers:
            return
        if not self._pace.is_watched:
            try:
                self._pool.component.fill_masks(
                    matchers, mask_RW, [one.first + turn for one in filling]
                )
            except Exception:  # noqa: BLE001 - which of them it was shows each alone
                pass
            else:
                return
        for one, matcher in zip(filling, matchers, strict=True):
            try:
                fill = partial(matcher.fill_mask, mask_RW, one.first + turn)
                self._pace.call(one.constraint, fill)
            except Exception as error:  # noqa: BLE001 - components are foreign code
                one.failure = _failure(error)

    def close(self) -> None:
        """End what compiles. May be called again."""
        if self._pool is not None:
            self._pool.close()


NO_GRAMMARS = Grammars()
"""Of an engine without a component."""


def _failure(error: Exception) -> DeepInferError:
    """What the request is told; what others say of it is for the log."""
    if isinstance(error, DeepInferError):
        if detail := foreign_detail(error):
            get_logger(__name__).debug("grammar.failed", detail=detail)
        return error
    return EngineError(f"the grammar component failed: {type(error).__name__}: {error}")


def _drafted(
    one: ConstrainedRows,
    turn: int,
    rows: tuple[RowRequest, ...],
    mask_RW: npt.NDArray[np.int32],
    pace: Pace | None,
) -> bool:
    """Follow a draft; nobody draws behind one that is not allowed, or where there is none."""
    draft = rows[one.places[turn]].draft
    try:
        follow = partial(one.constraint.draft, draft)
        if draft >= 0 and (follow() if pace is None else pace.call(one.constraint, follow)):
            return True
    except Exception as error:  # noqa: BLE001 - components are foreign code
        one.failure = _failure(error)
    mask_RW[one.first + turn + 1 : one.first + len(one.places)] = -1
    return False


def _read(one: ConstrainedRows) -> None:
    one.constraint.read(one.sequence.tokens, one.sequence.prompt_tokens)


def _allowed_drafts(sequence: Sequence, constraint: Constraint) -> int:
    """How many drafts the grammar allows, from the first one on."""
    constraint.read(sequence.tokens, sequence.prompt_tokens)
    allowed = sum(1 for _ in takewhile(constraint.draft, sequence.drafts.ids))
    constraint.forget_drafts()
    return allowed


def _forget_drafts(one: ConstrainedRows) -> None:
    try:
        one.constraint.forget_drafts()
    except Exception as error:  # noqa: BLE001 - components are foreign code
        one.failure = _failure(error)
