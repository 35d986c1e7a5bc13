"""Which decode steps do components repeat, as the calls that they have noted down?

Components that record their own calls (``Component.recorder``, such as those of ``core.cpu``) pay
for each row of padding as for any row, and next to nothing for recording. So rungs are near, and a
rung is recorded when a step of it comes for the second time. A device that records all launches has
``decode_graphs``.

All recordings of a model keep ``MOST_RECORDED_BYTES`` at most for each row that a sequence may
feed, which the memory plan counts.
"""

from __future__ import annotations

import torch

from deepinfer_core.cache.storage import Caches
from deepinfer_core.engine.recorded_steps import RecordedStep, RecordedSteps
from deepinfer_core.engine.rungs import NearRungs, Rung
from deepinfer_core.interfaces.recording import MOST_RECORDED_BYTES, Recorder
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.schedule.plan import StepPlan

__all__ = ["LateRecordings", "shared_recorder"]


class LateRecordings(RecordedSteps):
    """Recordings of the rungs that come, the one repeated last at the end.

    Args:
        model: the network.
        caches: what it runs over.
        recorder: sees the calls of all its components.
        max_sequences: most sequences.
        max_tokens: longest text.
        block_tokens: tokens of a block.
        rows_each: most rows of a sequence.
    """

    def __init__(
        self,
        model: TextModel,
        caches: Caches,
        recorder: Recorder,
        *,
        max_sequences: int,
        max_tokens: int,
        block_tokens: int,
        rows_each: int = 1,
    ) -> None:
        ladder = NearRungs(max_sequences, max_tokens, block_tokens, rows_each=rows_each)
        super().__init__(model, caches, ladder)
        self._recorder = recorder
        self._most_bytes = MOST_RECORDED_BYTES * rows_each
        self._recordings: dict[Rung, RecordedStep] = {}
        self._seen: set[Rung] = set()
        self._refused: set[Rung] = set()

    def rung_of(self, plan: StepPlan) -> Rung | None:
        """The rung of a step, unless it is the first one of it; see ``RecordedSteps``.

        The first one has compiled and planned what the recorded one needs.
        """
        rung = self._ladder.rung_of(plan)
        if rung is None or rung in self._refused:
            return None
        if rung not in self._seen:
            self._seen.add(rung)
            return None
        return rung

    def run(self, rung: Rung, words: torch.Tensor) -> torch.Tensor:
        """Do a step; see ``RecordedSteps``."""
        step = self._recordings.pop(rung, None)
        if step is not None:
            self._recordings[rung] = step
            return step.repeat(words)
        largest, inputs = self._largest(rung)
        step = self._recorded(self._recorder, rung, largest, inputs)
        if step is None or step.recording.memory_bytes > self._most_bytes:
            self._refused.add(rung)
            largest.copy_(words[: largest.shape[0]])
            return self.model.forward(inputs, self.caches)
        self._recordings[rung] = step
        self._make_room()
        return step.repeat(words)

    def clear(self) -> None:
        """Give all recordings away; steps are recorded anew."""
        self._recordings = {}

    def _make_room(self) -> None:
        """Give away what was not repeated for longest while all together keep too much."""
        sizes = {rung: one.recording.memory_bytes for rung, one in self._recordings.items()}
        excess = sum(sizes.values()) - self._most_bytes
        for rung, size in sizes.items():
            if excess <= 0:
                break
            del self._recordings[rung]
            excess -= size


def shared_recorder(parts: ModelParts) -> Recorder | None:
    """The recorder that all components of a decode step name; None if they do not name one."""
    components = (
        *(parts.decode, parts.indexer, parts.codec, parts.transform),
        *(parts.dense, parts.grouped, parts.all_to_all),
    )
    named = {component.recorder for component in components}
    return named.pop() if len(named) == 1 else None
