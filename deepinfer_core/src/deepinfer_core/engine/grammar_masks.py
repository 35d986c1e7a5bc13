"""Which rows of a step are constrained, and by which masks?

Masks are made when the tokens before are known and the forward pass of the step runs already.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepinfer_core.engine.grammar_constraint import Constraint
from deepinfer_core.engine.grammar_pool import GrammarPool
from deepinfer_core.engine.rows import RowRequest
from deepinfer_core.engine.sequence import Request, Sequence
from deepinfer_core.errors import DeepInferError, EngineError, RequestError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["NO_GRAMMARS", "Grammars"]


@dataclass(frozen=True, slots=True)
class _Rows:
    """The drawn rows of one constrained sequence, by place among all."""

    sequence: Sequence
    places: list[int]


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

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of grammar that requests may ask for; none without a component."""
        return () if self._pool is None else tuple(sorted(self._pool.component.kinds))

    def constraint(self, request: Request) -> Constraint | None:
        """The constraint of a request; its grammar begins to be compiled. None: it has none.

        Raises:
            RequestError: there is no component for grammars of this kind, or a token does not
                exist.
        """
        asked = request.params.grammar_request
        if asked is None:
            return None
        if self._pool is None:
            raise RequestError(
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
        """Sequences whose grammar was refused, with the reason."""
        if self._pool is None:
            return []
        found = []
        for sequence in sequences:
            constraint = sequence.constraint
            if constraint is not None and (failure := constraint.failure) is not None:
                found.append((sequence, failure))
        return found

    def wait(self, sequences: Iterable[Sequence], timeout_s: float) -> bool:
        """Whether some grammar is being compiled; waits for it a little."""
        waits = any(one.constraint and not one.constraint.is_settled for one in sequences)
        if waits and self._pool is not None:
            self._pool.wait(timeout_s)
        return waits

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

        count = sum(len(one.places) for one in chosen)
        mask_RW = np.empty((count, self._pool.vocabulary.words), dtype=np.int32)
        masked, broken, first = list(rows), [], 0
        for one in chosen:
            places = range(first, first + len(one.places))
            first += len(one.places)
            try:
                self._fill(one, rows, mask_RW, places)
            except Exception as error:  # noqa: BLE001 - components are foreign code
                broken.append((one.sequence, _failure(error)))
                mask_RW[places.start : places.stop] = -1
            for place, row in zip(one.places, places, strict=True):
                masked[place] = rows[place]._replace(mask=mask_RW[row])
        return tuple(masked), broken

    def _fill(
        self,
        one: _Rows,
        rows: tuple[RowRequest, ...],
        mask_RW: npt.NDArray[np.int32],
        places: range,
    ) -> None:
        sequence = one.sequence
        assert sequence.constraint is not None
        drafts = [rows[place].draft for place in one.places[:-1]]
        known = drafts.index(-1) if -1 in drafts else len(drafts)
        # Behind a place where there is no draft nobody draws.
        mask_RW[places[known + 1 :]] = -1
        sequence.constraint.fill(sequence.output_ids, drafts[:known], mask_RW, places[: known + 1])

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


def _constrained(rows: tuple[RowRequest, ...], owners: list[Sequence]) -> list[_Rows]:
    found: list[_Rows] = []
    for place, (row, owner) in enumerate(zip(rows, owners, strict=True)):
        if owner.constraint is None or row.position < owner.prompt_tokens:
            continue
        if found and found[-1].sequence is owner:
            found[-1].places.append(place)
        else:
            found.append(_Rows(owner, [place]))
    return found
