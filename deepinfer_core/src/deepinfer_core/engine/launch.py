"""What does a step feed, and what is to be done when it has ended?"""

from __future__ import annotations

from deepinfer_core.engine.pages import Saved
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.schedule.plan import StepPlan
from deepinfer_core.schedule.snapshot import StepKind

__all__ = ["Launch"]


class Launch:
    """One step.

    Attributes:
        plan: for the runner.
        kind: of the step.
        sequences: of each entry of the plan.
        admissions: the stay that each entry belongs to.
        ends: position behind the rows of each entry, at most.
        draws: tokens that each entry draws, at most.
        saved: copies of states that the step makes.
        admitted: sequences that entered with it.
    """

    __slots__ = ("admissions", "admitted", "draws", "ends", "kind", "plan", "saved", "sequences")

    def __init__(
        self,
        plan: StepPlan,
        kind: StepKind,
        sequences: list[Sequence],
        draws: list[int],
        saved: list[Saved],
        admitted: list[Sequence],
    ) -> None:
        self.plan = plan
        self.kind = kind
        self.sequences = sequences
        self.admissions = [sequence.admissions for sequence in sequences]
        self.ends = [sequence.computed for sequence in sequences]
        self.draws = draws
        self.saved = saved
        self.admitted = admitted

    def forget_plan(self) -> None:
        """Let the plan go when its rows are computed.

        It is a large part of what is alive while outputs are made; with less alive the garbage
        collector is called less often.
        """
        self.plan = StepPlan(())

    def row_counts(self) -> tuple[int, int]:
        """Rows of chunks and rows of decoding, told apart as ``StepKind`` does."""
        rows = self.plan.rows
        if self.kind == "decode":
            return 0, rows
        if self.kind == "prefill":
            return rows, 0
        entered = {sequence.sequence_id for sequence in self.admitted}
        decodes = sum(
            draws
            for step, draws in zip(self.plan.sequences, self.draws, strict=True)
            if len(step.token_ids) == draws and step.sequence_id not in entered
        )
        return rows - decodes, decodes
