"""What is known about a step from its launch until its results were handled?

The times of a step say what the step loop did for it, not what the device did: while a step is
under way the next one is decided and launched. Only *elapsed* times never overlap.
"""

from __future__ import annotations

from deepinfer_core.engine.instruments import StepFacts
from deepinfer_core.engine.launch import Launch
from deepinfer_core.engine.rows import Drafted, DraftRequest, RowRequest, StepHandle
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.errors import DeepInferError
from deepinfer_core.interfaces.draft_planner import DraftOutcome

__all__ = ["UnderWay"]


class UnderWay:
    """A step whose results were not read yet.

    Args:
        launch: what it feeds.
        began_s: when it began to be decided; monotonic clock, like all times.

    Attributes:
        launch: as given.
        handle: the runner's; None if the runner refused it.
        rows: what is sampled.
        owners: whose row each of them is.
        failure: why it failed before it ran.
        schedule_s: seconds spent on deciding and launching it.
        broken: sequences whose grammar broke, with the reason; what they draw is dropped.
        drew: sequences that drew in it.
        more_drawn: tokens that they got beside the first of each.
        wanted: the drafts that it gives for the next step.
        drafted: whose they are.
        outcomes: what became of the drafts that it verified.
        given: what the runner says about both.
        started: sequences whose first row it feeds.
    """

    __slots__ = (
        "_began_s", "_queued_s", "_row_counts", "broken", "drafted", "drew", "failure", "given",
        "handle", "launch", "more_drawn", "outcomes", "owners", "rows", "schedule_s", "started",
        "wanted",
    )  # fmt: skip

    def __init__(self, launch: Launch, began_s: float) -> None:
        self.launch = launch
        self.handle: StepHandle | None = None
        self.rows: tuple[RowRequest, ...] = ()
        self.owners: list[Sequence] = []
        self.failure: Exception | None = None
        self.schedule_s = 0.0
        self.broken: list[tuple[Sequence, DeepInferError]] = []
        self.drew: list[Sequence] = []
        self.more_drawn = 0
        self.wanted: tuple[DraftRequest, ...] = ()
        self.drafted: list[Sequence] = []
        self.outcomes: list[DraftOutcome] = []
        self.given = Drafted()
        self._row_counts = launch.row_counts()
        self._began_s = began_s
        self._queued_s: list[float] = []
        self.started: list[Sequence] = []
        for sequence in launch.admitted:
            if sequence.first_scheduled_s is None:
                sequence.first_scheduled_s = began_s
                self.started.append(sequence)
                self._queued_s.append(began_s - sequence.request.arrival_s)

    def facts(self, *, since_s: float, asked_s: float, known_s: float, ended_s: float) -> StepFacts:
        """What the instruments are told; notes in each sequence when its newest token came.

        Args:
            since_s: when the step before ended.
            asked_s: when its results were asked for.
            known_s: when they came.
            ended_s: when they were handled.
        """
        previous_s: list[float] = []
        first_s: list[float] = []
        for sequence in self.drew:
            if sequence.last_token_s is None:
                first_s.append(known_s - sequence.request.arrival_s)
            else:
                previous_s.append(sequence.last_token_s)
            sequence.last_token_s = ended_s
        prompt_rows, decode_rows = self._row_counts
        return StepFacts(
            kind=self.launch.kind,
            prompt_rows=prompt_rows,
            decode_rows=decode_rows,
            ended_s=ended_s,
            elapsed_s=ended_s - max(self._began_s, since_s),
            schedule_s=self.schedule_s,
            wait_s=known_s - asked_s,
            output_s=ended_s - known_s,
            queued_s=self._queued_s,
            first_tokens_s=first_s,
            previous_tokens_s=previous_s,
            more_tokens=self.more_drawn,
            verified=[(one.verified, one.accepted) for one in self.outcomes],
        )
