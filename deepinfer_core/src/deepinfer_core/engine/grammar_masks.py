"""Which rows of a step are constrained, and by which masks?

Masks are made when the tokens before are known and the forward pass of the step runs already: of
all sequences at once, first behind their outputs, then behind each draft in turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from deepinfer_core.engine.grammar_constraint import Constraint
from deepinfer_core.engine.grammar_pool import GrammarPool
from deepinfer_core.engine.rows import RowRequest
from deepinfer_core.engine.sequence import Request, Sequence
from deepinfer_core.errors import DeepInferError, EngineError, RequestError, UnsupportedGrammar

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from deepinfer_core.interfaces.draft_planner import AcceptanceRule

__all__ = ["NO_GRAMMARS", "Grammars"]


@dataclass(slots=True)
class _Rows:
    """The drawn rows of one constrained sequence.

    Attributes:
        sequence: whose rows.
        constraint: of the sequence.
        first: first of its masks; one follows the other.
        places: of its rows among all.
        failure: why the sequence cannot go on.
    """

    sequence: Sequence
    constraint: Constraint
    first: int
    places: list[int]
    failure: DeepInferError | None = None


class Grammars:
    """Makes constraints, and the masks of a step.

    Args:
        pool: compiles grammars; None: no component was chosen.
        end_ids: tokens that end a sequence.
    """

    def __init__(
        self, pool: GrammarPool | None = None, end_ids: frozenset[int] = frozenset()
    ) -> None:
        self._pool = pool
        self._end_ids = end_ids
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
                hint="install deepinfer-grammar where it is missing, and set"
                ' components.grammar.use to "auto"',
            )
        size = len(self._pool.vocabulary.pieces)
        bound = () if asked.bound_token_id is None else (asked.bound_token_id,)
        for token in (*asked.trigger_ids, *bound, *asked.prefix_ids):
            if token >= size or token in self._end_ids:
                raise RequestError(
                    f"token {token} cannot start structured output",
                    hint=f"ids are below {size}, and not those that end a text",
                )
        return Constraint(asked, self._pool.compiled(asked.text), self._end_ids)

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
            failure = broken.get(sequence.sequence_id) or constraint.failure
            if failure is not None:
                found.append((sequence, failure))
        return found

    def wait(self, sequences: Iterable[Sequence], timeout_s: float) -> bool:
        """Whether some grammar is being compiled; waits for it a little."""
        waits = any(one.constraint and not one.constraint.is_settled for one in sequences)
        if waits and self._pool is not None:
            self._pool.wait(timeout_s)
        return waits

    def cut_drafts(self, drafted: Iterable[Sequence], rule: AcceptanceRule) -> None:
        """Drop the drafts that the grammars of their sequences do not allow, and those behind them.

        Under the ratio rule the first that is not allowed stays, to be rejected: what is drawn in
        its place has to make up for how likely it was to be drafted.

        Args:
            drafted: sequences, some of which may be gone.
            rule: how drafts are accepted.
        """
        for sequence in drafted:
            drafts, constraint = sequence.drafts, sequence.constraint
            if constraint is None or not drafts.ids:
                continue
            try:
                constraint.read(sequence.tokens, sequence.prompt_tokens)
                allowed = sum(1 for _ in takewhile(constraint.draft, drafts.ids))
                constraint.forget_drafts()
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
        chosen = _constrained(rows, owners)
        if not chosen:
            return rows, []
        import numpy as np

        count = chosen[-1].first + len(chosen[-1].places)
        mask_RW = np.empty((count, self._pool.vocabulary.words), dtype=np.int32)
        self._fill(chosen, rows, mask_RW)
        masked, masks = list(rows), list(mask_RW)
        for one in chosen:
            if one.failure is not None:
                mask_RW[one.first : one.first + len(one.places)] = -1
            for number, place in enumerate(one.places, one.first):
                # The mask is the last field; naming it takes three times as long.
                masked[place] = RowRequest._make((*rows[place][:-1], masks[number]))
        return tuple(masked), [(x.sequence, x.failure) for x in chosen if x.failure is not None]

    def _fill(
        self, chosen: list[_Rows], rows: tuple[RowRequest, ...], mask_RW: npt.NDArray[np.int32]
    ) -> None:
        """Fill the masks of each sequence, or note why not."""
        for one in chosen:
            try:
                one.constraint.read(one.sequence.tokens, one.sequence.prompt_tokens)
            except Exception as error:  # noqa: BLE001 - components are foreign code
                one.failure = _failure(error)
        turn, going = 0, [one for one in chosen if one.failure is None]
        while going:
            self._fill_turn(going, turn, mask_RW)
            going = [one for one in going if len(one.places) > turn + 1 and one.failure is None]
            going = [one for one in going if _drafted(one, turn, rows, mask_RW)]
            turn += 1
        if turn > 1:
            for one in chosen:
                _forget_drafts(one)

    def _fill_turn(self, going: list[_Rows], turn: int, mask_RW: npt.NDArray[np.int32]) -> None:
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
        try:
            self._pool.component.fill_masks(
                matchers, mask_RW, [one.first + turn for one in filling]
            )
        except Exception:  # noqa: BLE001 - which of them it was shows each alone
            for one, matcher in zip(filling, matchers, strict=True):
                try:
                    matcher.fill_mask(mask_RW, one.first + turn)
                except Exception as error:  # noqa: BLE001 - components are foreign code
                    one.failure = _failure(error)

    def close(self) -> None:
        """End what compiles. May be called again."""
        if self._pool is not None:
            self._pool.close()


NO_GRAMMARS = Grammars()
"""Of an engine without a component."""


def _failure(error: Exception) -> DeepInferError:
    if isinstance(error, DeepInferError):
        return error
    return EngineError(f"the grammar component failed: {type(error).__name__}: {error}")


def _drafted(
    one: _Rows, turn: int, rows: tuple[RowRequest, ...], mask_RW: npt.NDArray[np.int32]
) -> bool:
    """Follow a draft; nobody draws behind one that is not allowed, or where there is none."""
    draft = rows[one.places[turn]].draft
    try:
        if draft >= 0 and one.constraint.draft(draft):
            return True
    except Exception as error:  # noqa: BLE001 - components are foreign code
        one.failure = _failure(error)
    mask_RW[one.first + turn + 1 : one.first + len(one.places)] = -1
    return False


def _forget_drafts(one: _Rows) -> None:
    try:
        one.constraint.forget_drafts()
    except Exception as error:  # noqa: BLE001 - components are foreign code
        one.failure = _failure(error)


def _constrained(rows: tuple[RowRequest, ...], owners: list[Sequence]) -> list[_Rows]:
    found: list[_Rows] = []
    last, first = None, 0
    for place, owner in enumerate(owners):
        constraint = owner.constraint
        if constraint is None or rows[place].position < owner.prompt_tokens:
            continue
        if owner is last:
            found[-1].places.append(place)
        else:
            found.append(_Rows(owner, constraint, first, [place]))
            last = owner
        first += 1
    return found
