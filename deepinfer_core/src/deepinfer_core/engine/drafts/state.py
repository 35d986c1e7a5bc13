"""What is known about the drafts of one sequence?"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from operator import mul

from deepinfer_core.engine.rows import DraftResult

__all__ = ["DraftState"]


@dataclass(slots=True, kw_only=True, eq=False)
class DraftState:
    """Drafts of the tokens behind the last one.

    Attributes:
        place: where the device keeps them; 0: nowhere, the sequence waits, or nobody drafts.
        ids: of the drafts, as far as the host knows them.
        open_count: how many the step under way gives.
        wanted: how many the next step is to verify, if there is room.
        given: what the drafts came with, or those that the step under way verifies.
        newest, before: survival of the drafts of the last two rounds; see ``DraftView``.
    """

    place: int = 0
    ids: tuple[int, ...] = ()
    open_count: int = 0
    wanted: int = 0
    given: DraftResult | None = None
    newest: tuple[float, ...] | None = None
    before: tuple[float, ...] | None = None

    def take(self, given: DraftResult) -> None:
        """Take the drafts behind the last token, which is known."""
        self.ids, self.given = given.token_ids, given
        self.before = self.newest
        self.newest = tuple(accumulate(given.confidences, mul)) if given.confidences else None

    def drop(self) -> None:
        """There are none: a step gave none, or the sequence lost its place."""
        self.ids, self.given = (), None
