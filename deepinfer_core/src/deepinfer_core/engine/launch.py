"""What does a step feed, and what is to be done when it has ended?"""

from __future__ import annotations

from deepinfer_core.engine.drafts.host import Drafting
from deepinfer_core.engine.page_records import Saved
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
        drafting: decides about its drafts; None: it has nothing to do with drafts.
    """

    __slots__ = (
        "admissions", "admitted", "drafting", "draws", "ends", "kind", "plan", "saved", "sequences",
    )  # fmt: skip

    def __init__(
        self,
        plan: StepPlan,
        kind: StepKind,
        sequences: list[Sequence],
        draws: list[int],
        saved: list[Saved],
        admitted: list[Sequence],
        drafting: Drafting | None = None,
    ) -> None:
        self.plan = plan
        self.kind = kind
        self.sequences = sequences
        self.admissions = [sequence.admissions for sequence in sequences]
        self.ends = [sequence.computed for sequence in sequences]
        self.draws = draws
        self.saved = saved
        self.admitted = admitted
        self.drafting = drafting

    def share(self, rows: tuple[int, ...]) -> None:
        """Take into the books how the device shared out the rows of the step.

        Args:
            rows: of each entry, whose rows are all open.
        """
        steps = list(self.plan.sequences)
        for number, (step, count) in enumerate(zip(steps, rows, strict=True)):
            more = count - len(step.token_ids)
            if not more:
                continue
            steps[number] = step._replace(
                token_ids=step.token_ids[:1] * count, scored_rows=count - 1
            )
            self.ends[number] += more
            self.draws[number] += more
            sequence = self.sequences[number]
            sequence.open_tokens += more
            if sequence.admissions == self.admissions[number] and sequence.state_slot is not None:
                sequence.computed += more
        self.plan = self.plan._replace(sequences=tuple(steps))

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
