"""Steps for a planner to decide about, without an engine."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from deepinfer_core.interfaces.draft_planner import DraftView, StepTimes
from deepinfer_core.schedule.speculation_costs import CostCurve
from deepinfer_dspark.measuring import MeasuredCosts
from deepinfer_dspark.planner import DsparkPlanner

BAD = DraftView(2, (0.1, 0.01), (0.1, 0.01))
GOOD = DraftView(2, (0.9, 0.8), (0.9, 0.8))
BARE = DraftView(0)
TIMES = {1: 10.0, 2: 10.5, 3: 11.0, 6: 13.0}
SLOW = {1: 10.0, 2: 30.0, 3: 30.0, 6: 40.0}


def planner(times: Mapping[int, float] = TIMES, round_ms: float = 1.0) -> DsparkPlanner:
    return DsparkPlanner(
        MeasuredCosts(
            steps=CostCurve(rows=tuple(times), milliseconds=tuple(times.values())),
            rounds=CostCurve(rows=(1, 2), milliseconds=(round_ms, round_ms)),
        ),
        drafts=2,
    )


class Loop:
    """Steps of alike sequences, which have drafts behind a round.

    Args:
        made: plans.
        view: of a sequence that has drafts.
        times: what a step of so many rows takes, in milliseconds.
        round_ms: what a round takes.
    """

    def __init__(
        self,
        made: DsparkPlanner,
        view: DraftView,
        times: Mapping[int, float] = TIMES,
        round_ms: float = 1.0,
    ) -> None:
        self.made, self.view, self.times, self.round_ms = made, view, times, round_ms
        self.rests = 0
        self.comes: Sequence[float] | None = None
        """How many of each draft are accepted, if not as many as survive by the view."""
        self._has_drafts = False

    def run(self, steps: int, sequences: int = 1) -> list[tuple[int, bool]]:
        """Rows of each step, and whether a round followed."""
        found = []
        for _ in range(steps):
            given = self.made.rows(self.views(sequences), other_rows=0)
            rows, comes = sum(given), self.comes or self.view.newest or ()
            # There are no parts of tokens in an engine.
            tokens: Any = sum(1 + sum(comes[: one - 1]) for one in given)
            drafts = self.made.drafts_next()
            found.append((rows, drafts))
            self.rests = 0 if drafts else self.made.rest()
            round_s = self.round_ms / 1e3 if drafts else None
            whole_s = self.times[rows] / 1e3 + (round_s or 0.0)
            self.made.took(StepTimes(sequences, rows, whole_s, drafts, round_s, tokens))
            self._has_drafts = drafts
        return found

    def views(self, sequences: int) -> Sequence[DraftView]:
        return [self.view if self._has_drafts else BARE] * sequences

    def usual(self, steps: int, sequences: int = 1) -> tuple[int, bool]:
        """What most of the last of so many steps were."""
        [(most, _)] = Counter(self.run(steps, sequences)[-20:]).most_common(1)
        return most
