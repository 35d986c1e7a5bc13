"""Which rows of a step belong to sequences with a grammar?"""

from __future__ import annotations

from dataclasses import dataclass

from deepinfer_core.engine.grammar_constraint import Constraint
from deepinfer_core.engine.rows import RowRequest
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.errors import DeepInferError

__all__ = ["ConstrainedRows", "constrained_rows"]


@dataclass(slots=True)
class ConstrainedRows:
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


def constrained_rows(rows: tuple[RowRequest, ...], owners: list[Sequence]) -> list[ConstrainedRows]:
    """Those of them from which something is drawn, by sequence; scored prompts are free."""
    found: list[ConstrainedRows] = []
    last, first = None, 0
    for place, owner in enumerate(owners):
        constraint = owner.constraint
        if constraint is None or rows[place].position < owner.prompt_tokens:
            continue
        if owner is last:
            found[-1].places.append(place)
        else:
            found.append(ConstrainedRows(owner, constraint, first, [place]))
            last = owner
        first += 1
    return found
