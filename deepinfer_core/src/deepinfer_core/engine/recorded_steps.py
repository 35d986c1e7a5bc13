"""How is a decode step repeated from a recording, instead of being told call by call?

Where each sequence feeds a row or a few, a step of so many rows is the same calls every time; only
numbers in memory differ, among them which row belongs to which sequence. So one recording for each
*rung* of a ladder of sizes serves all such steps: they are padded with rows that write into the
dummy pages, up to the next number of rows and the next reach. The reach is the highest position at
which a sequence of a recording can begin; score rows and block tables of the recording are as wide
as it needs, whatever is visible in the step itself.

What the host decides in a forward pass is decided once, when the rung is recorded, so it has to
hold for every step that follows. The sequences of the recorded step feed as many rows as may be,
begin at the reach, at their first valid position and behind all that is cached: then no mask is
left out that another step may need.

When rungs are recorded, and how near they are, is for ``decode_graphs`` and ``late_recordings``.

Shapes: T rows of a rung, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial

import torch

from deepinfer_core.cache.storage import Caches
from deepinfer_core.engine.packed_step import PackedStep, StepShape
from deepinfer_core.engine.rungs import Ladder, Rung
from deepinfer_core.interfaces.recording import Recorder, Recording
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.step import StepInputs
from deepinfer_core.schedule.plan import SequenceStep, StepPlan

__all__ = ["RecordedStep", "RecordedSteps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """One recording.

    Attributes:
        recording: what is repeated.
        inputs: what it reads, which has to stay.
        words: the packed step that most of the inputs lie in.
        logits_TV: where it leaves logits.
    """

    recording: Recording
    inputs: StepInputs
    words: torch.Tensor
    logits_TV: torch.Tensor

    def repeat(self, words: torch.Tensor) -> torch.Tensor:
        """Do another step of the rung; its logits [T, V] are overwritten by the next one."""
        self.words.copy_(words[: self.words.shape[0]])
        self.recording.repeat()
        return self.logits_TV


class RecordedSteps(ABC):
    """The recordings of one model over its caches.

    Args:
        model: the network.
        caches: what it runs over.
        ladder: the sizes of recordings.
    """

    def __init__(self, model: TextModel, caches: Caches, ladder: Ladder) -> None:
        # More rows of a sequence would be fed another way; see ``model.windows``.
        assert ladder.rows_each <= caches.layout.max_backtracking
        self.model = model
        self.caches = caches
        self._ladder = ladder
        self._logits_TV: torch.Tensor | None = None

    @abstractmethod
    def rung_of(self, plan: StepPlan) -> Rung | None:
        """The recording that is to do a step; None: it is launched call by call.

        Called in the order of steps, before they run.
        """

    @abstractmethod
    def run(self, rung: Rung, words: torch.Tensor) -> torch.Tensor:
        """Do a step; called by work on a stream.

        Args:
            rung: of the step.
            words: the packed step on the device.

        Returns:
            Logits [T, V] of all rows, padding too; overwritten by the next step.
        """

    def shape_of(self, rung: Rung) -> StepShape:
        """What a step of the rung is padded to."""
        ladder = self._ladder
        return StepShape(
            rows=rung.rows,
            # Where rows are padded, at least one sequence is, too.
            sequences=min(rung.rows, ladder.max_sequences + 1),
            blocks=rung.reach // ladder.block_tokens + 1,
        )

    def _largest(self, rung: Rung) -> tuple[torch.Tensor, StepInputs]:
        """The largest step of a rung, over the dummy pages: its words, and the inputs in them."""
        device = self.model.parts.device
        plan = _largest_plan(rung)
        packed = PackedStep(plan, device, shape=self.shape_of(rung))
        words = packed.bring(None)
        return words, packed.inputs(words)

    def _recorded(
        self, recorder: Recorder, rung: Rung, words: torch.Tensor, inputs: StepInputs
    ) -> RecordedStep | None:
        """Record the largest step of a rung; None if it cannot be repeated."""
        out_TV = self._logits()[: rung.rows]
        recording = recorder.record(partial(self._step, inputs, out_TV))
        if recording is None:
            return None
        return RecordedStep(recording=recording, inputs=inputs, words=words, logits_TV=out_TV)

    def _step(self, inputs: StepInputs, out_TV: torch.Tensor) -> None:
        out_TV.copy_(self.model.forward(inputs, self.caches))

    def _logits(self) -> torch.Tensor:
        """Room for the logits of any rung, which all of them share."""
        if self._logits_TV is None:
            shape = self._ladder.max_rows, self.model.config.text_config.vocab_size
            device = self.model.parts.device.torch_device
            self._logits_TV = torch.empty(shape, dtype=self.model.rows.accumulate, device=device)
        return self._logits_TV


def _largest_plan(rung: Rung) -> StepPlan:
    """A step that no step of the rung exceeds."""
    rows_each = rung.rows_each
    firsts = range(0, rung.rows, rows_each)
    steps = [_largest_step(rung.reach, min(rows_each, rung.rows - first)) for first in firsts]
    return StepPlan(tuple(steps))


def _largest_step(reach: int, rows: int) -> SequenceStep:
    return SequenceStep(
        sequence_id=0,
        start=reach,
        token_ids=(0,) * rows,
        history=(0, 0, 0),
        block_ids=(0,),
        state_slot=0,
        wants_token=True,
        scored_rows=rows - 1,
        cached_end=reach,
        valid_start=reach,
    )
