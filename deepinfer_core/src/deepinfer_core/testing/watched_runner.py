"""Which logits did the model give for each row of each sequence that an engine ran?

Shapes: R rows, V vocabulary.
"""

from __future__ import annotations

import torch

from deepinfer_core.cache.replay import DecoderTruncation
from deepinfer_core.cache.storage import Caches
from deepinfer_core.engine.rows import DraftRequest, RowRequest, StepHandle
from deepinfer_core.engine.runner import ModelRunner
from deepinfer_core.interfaces.component import Plan, Properties
from deepinfer_core.interfaces.device import Stream
from deepinfer_core.interfaces.sampler import Sampler, SamplerOutputs, SamplerRows, SamplerSpec
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.reference import sampler as reference_sampler
from deepinfer_core.schedule.plan import SequenceStep, StepPlan

__all__ = ["WatchedRunner"]


class _WatchedSampler(Sampler):
    """Keeps the logits of each call."""

    def __init__(self, inner: Sampler) -> None:
        self._inner = inner
        self.seen: list[torch.Tensor] = []

    @property
    def properties(self) -> Properties:
        return self._inner.properties

    def plan(self, spec: SamplerSpec, max_rows: int) -> Plan:
        return self._inner.plan(spec, max_rows)

    def run(
        self, plan: Plan, logits_RV: torch.Tensor, rows: SamplerRows, out: SamplerOutputs
    ) -> None:
        self.seen.append(logits_RV.clone())
        self._inner.run(plan, logits_RV, rows, out)


class WatchedRunner(ModelRunner):
    """A model's runner that remembers what it was asked and what the model gave.

    Args:
        model: the network.
        caches: its memory.
        stream: where steps run.
        truncation: how the decoder half treats prompts.
        sampler: draws tokens; None: the one of the reference.

    Attributes:
        plans: of all steps.
    """

    def __init__(
        self,
        model: TextModel,
        caches: Caches,
        stream: Stream,
        truncation: DecoderTruncation | None = None,
        sampler: Sampler | None = None,
    ) -> None:
        if sampler is None:
            context = BuildContext(device="cpu", needs=ModelNeeds())
            sampler = reference_sampler.build(None, context)
        self._watched = _WatchedSampler(sampler)
        vocabulary = model.config.text_config.vocab_size
        super().__init__(
            model, caches, self._watched, stream, vocabulary=vocabulary, truncation=truncation
        )
        self.plans: list[StepPlan] = []
        self._keys: list[list[tuple[int, int]]] = []

    def launch(self, plan: StepPlan, before: StepHandle | None) -> StepHandle:
        """Queue a forward pass; see ``Runner``."""
        self.plans.append(plan)
        return super().launch(plan, before)

    def sample(
        self,
        step: StepHandle,
        rows: tuple[RowRequest, ...],
        wanted: tuple[DraftRequest, ...] = (),
    ) -> None:
        """Queue the sampling; see ``Runner``. The engine samples each step before the next."""
        if rows:
            wanted = _wanted(self.plans[-1])
            self._keys.append([wanted[row.row] for row in rows])
        super().sample(step, rows, wanted)

    def forget(self) -> None:
        """Drop what was remembered."""
        self.drain()
        self.plans.clear()
        self._keys.clear()
        self._watched.seen.clear()

    def logits(self) -> dict[tuple[int, int], torch.Tensor]:
        """Logits [V] of every sampled row, by sequence and position of the row."""
        self.drain()
        found: dict[tuple[int, int], torch.Tensor] = {}
        for keys, logits_RV in zip(self._keys, self._watched.seen, strict=True):
            found.update(zip(keys, logits_RV, strict=True))
        return found

    def steps_of(self, sequence_id: int) -> list[SequenceStep]:
        """What one sequence fed in each step, in order."""
        return [step for plan in self.plans for step in plan.sequences if step[0] == sequence_id]


def _wanted(plan: StepPlan) -> list[tuple[int, int]]:
    """Sequence and position of each row whose logits a plan wants."""
    rows: list[tuple[int, int]] = []
    for step in plan.sequences:
        rows += [(step.sequence_id, step.start + row) for row in range(step.scored_rows)]
        if step.wants_token:
            rows.append((step.sequence_id, step.start + len(step.token_ids) - 1))
    return rows
