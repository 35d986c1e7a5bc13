"""Which decode steps does a device repeat, as one launch each?

A device that records all launches (``Device.recorder``) records a step of every rung before the
first request: recording takes it long and needs it idle, while a row of padding costs next to
nothing. Components that record their own calls have ``late_recordings``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from deepinfer_core.cache.storage import Caches
from deepinfer_core.engine.recorded_steps import RecordedStep, RecordedSteps
from deepinfer_core.engine.rungs import FewRungs, Rung
from deepinfer_core.errors import DeviceError
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.schedule.plan import StepPlan

__all__ = ["DecodeGraphs"]


class DecodeGraphs(RecordedSteps):
    """Recordings of every rung, made ahead.

    Args:
        model: the network; its components promise ``graph_safe``.
        caches: what it runs over.
        max_sequences: most sequences.
        max_tokens: longest text.
        block_tokens: tokens of a block.
        rows_each: most rows of a sequence.
        row_counts: sizes to record, the largest ``max_sequences * rows_each``; None: those of
            ``row_rungs``.

    Attributes:
        recorded: how many recordings there are.
    """

    def __init__(
        self,
        model: TextModel,
        caches: Caches,
        *,
        max_sequences: int,
        max_tokens: int,
        block_tokens: int,
        rows_each: int = 1,
        row_counts: Sequence[int] | None = None,
    ) -> None:
        self._rungs = FewRungs(
            max_sequences, max_tokens, block_tokens, rows_each=rows_each, row_counts=row_counts
        )
        super().__init__(model, caches, self._rungs)
        self._recordings: dict[Rung, RecordedStep] = {}

    @property
    def recorded(self) -> int:
        """How many recordings there are."""
        return len(self._recordings)

    @property
    def rungs(self) -> list[Rung]:
        """All sizes, in the order in which they are recorded."""
        return self._rungs.rungs

    @torch.inference_mode()
    def record(self, tell: Callable[[Rung], None] | None = None) -> None:
        """Record every rung; nothing is recorded on a device without a recorder.

        Args:
            tell: called with each rung that was recorded.

        Raises:
            DeviceError: the device cannot record a step.
        """
        device = self.model.parts.device
        if device.recorder is None:
            return
        for rung in self.rungs:
            words, inputs = self._largest(rung)
            self.model.forward(inputs, self.caches)  # compiles what the step needs
            device.synchronise()
            step = self._recorded(device.recorder, rung, words, inputs)
            if step is None:
                raise DeviceError(
                    f"asked to record a step of {rung.rows} rows, found that it cannot be repeated",
                    hint="a component that promises graph_safe looks at a number; report it",
                )
            self._recordings[rung] = step
            if tell is not None:
                tell(rung)
        # The last step ran on another stream than those that will be repeated.
        device.synchronise()

    @torch.inference_mode()
    def rehearse(self) -> None:
        """Run the step of every rung once, and record none."""
        for rung in self.rungs:
            self.model.forward(self._largest(rung)[1], self.caches)

    def rung_of(self, plan: StepPlan) -> Rung | None:
        """The smallest recording that can do a step; see ``RecordedSteps``."""
        return self._rungs.rung_of(plan) if self._recordings else None

    def run(self, rung: Rung, words: torch.Tensor) -> torch.Tensor:
        """Do a step; see ``RecordedSteps``."""
        return self._recordings[rung].repeat(words)
