"""Which logits did the model give for each row of each sequence that an engine ran?

Shapes: R rows, V vocabulary.
"""

from __future__ import annotations

import torch

from deepinfer_core.cache.replay import DecoderTruncation
from deepinfer_core.cache.storage import Caches
from deepinfer_core.engine.drafts.stage import DraftStage
from deepinfer_core.engine.rows import DraftRequest, RowRequest, StepHandle
from deepinfer_core.engine.runner import ModelRunner
from deepinfer_core.interfaces.component import Plan, Properties
from deepinfer_core.interfaces.device import Stream
from deepinfer_core.interfaces.sampler import (
    DraftedRows,
    Sampler,
    SamplerOutputs,
    SamplerRows,
    SamplerSpec,
    Verdicts,
)
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

    def verify(
        self,
        plan: Plan,
        logits_RV: torch.Tensor,
        rows: SamplerRows,
        drafted: DraftedRows,
        out: SamplerOutputs,
        verdicts: Verdicts,
    ) -> None:
        self.seen.append(logits_RV.clone())
        self._inner.verify(plan, logits_RV, rows, drafted, out, verdicts)


class WatchedRunner(ModelRunner):
    """A model's runner that remembers what it was asked and what the model gave.

    Args:
        model: the network.
        caches: its memory.
        stream: where steps run.
        truncation: how the decoder half treats prompts.
        sampler: draws tokens; None: the one of the reference.
        stage: verifies and draws drafts; None: there are none.

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
        stage: DraftStage | None = None,
    ) -> None:
        if sampler is None:
            context = BuildContext(device="cpu", needs=ModelNeeds())
            sampler = reference_sampler.build(None, context)
        self._watched = _WatchedSampler(sampler)
        vocabulary = model.config.text_config.vocab_size
        super().__init__(
            model,
            caches,
            self._watched,
            stream,
            vocabulary=vocabulary,
            truncation=truncation,
            stage=stage,
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
            owners = _owners(self.plans[-1])
            self._keys.append([(owners[row.row], row.position - 1) for row in rows])
        super().sample(step, rows, wanted)

    def forget(self) -> None:
        """Drop what was remembered."""
        self.drain()
        self.plans.clear()
        self._keys.clear()
        self._watched.seen.clear()

    def logits(self) -> dict[tuple[int, int], torch.Tensor]:
        """Logits [V] of every sampled row, by sequence and position of the row.

        Of a position that was fed again, behind a rejected draft, those of the last time.
        """
        self.drain()
        found: dict[tuple[int, int], torch.Tensor] = {}
        for keys, logits_RV in zip(self._keys, self._watched.seen, strict=True):
            found.update(zip(keys, logits_RV, strict=True))
        return found

    def steps_of(self, sequence_id: int) -> list[SequenceStep]:
        """What one sequence fed in each step, in order."""
        return [step for plan in self.plans for step in plan.sequences if step[0] == sequence_id]


def _owners(plan: StepPlan) -> list[int]:
    """Sequence of each row whose logits a plan wants."""
    owners: list[int] = []
    for step in plan.sequences:
        owners += [step.sequence_id] * (step.scored_rows + step.wants_token)
    return owners
