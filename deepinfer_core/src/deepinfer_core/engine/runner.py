"""How does a step run on the device while the host goes on?

A step is work on one stream of the device: copies, forward pass and, queued later, sampling.
Whatever it needs is packed on the caller's thread and brought over by the work itself, so that it
is in order with everything else. Tokens that the step before drew are taken from its outputs on the
device. Results come to the host in one copy behind the sampling; nothing else waits.

Shapes: R sampled rows, V vocabulary.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch

from deepinfer_core.cache.replay import DecoderTruncation
from deepinfer_core.cache.storage import Caches
from deepinfer_core.engine.drafts.open_rows import Left
from deepinfer_core.engine.drafts.packed import PackedDrafts
from deepinfer_core.engine.drafts.proposed import Proposed
from deepinfer_core.engine.drafts.shared_rows import SharedRows
from deepinfer_core.engine.drafts.stage import DraftStage, PackedFeed
from deepinfer_core.engine.drawn import Drawn
from deepinfer_core.engine.packed_step import PackedStep
from deepinfer_core.engine.recorded_steps import RecordedSteps
from deepinfer_core.engine.rows import (
    Drafted,
    DraftRequest,
    RowRequest,
    RowResult,
    Runner,
    StepHandle,
)
from deepinfer_core.engine.rungs import Rung
from deepinfer_core.engine.sampler_inputs import SamplerInputs
from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.device import Event, Stream
from deepinfer_core.interfaces.sampler import Sampler, SamplerSpec
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.step import StepInputs
from deepinfer_core.schedule.plan import StepPlan

__all__ = ["ModelRunner", "ModelStep"]


class ModelStep(StepHandle):
    """A step on the stream.

    Attributes:
        logits_RV: of the rows that the plan wants; gone when they were sampled.
        has_drafts: rows are fed for drafts, whether there turn out to be some or not.
        words: the packed step on the device, until its forward pass runs.
        shared: how rows are shared out anew; None: they are not.
        rows: what is sampled.
        drawn: what the sampler gave, when it ran.
        inputs: gives those of the forward pass, for ``left``.
        left: for the step behind it, where there are drafts.
        proposed: drafts, when their round ran.
        round_s: seconds of the round, where the device's work is done when it returns.
        ends: of what was queued, in order; the sharing of rows comes first if there is one.
    """

    __slots__ = (
        "drawn", "ends", "has_drafts", "inputs", "left", "logits_RV", "proposed", "round_s", "rows",
        "shared", "words",
    )  # fmt: skip

    def __init__(self) -> None:
        self.logits_RV: torch.Tensor | None = None
        self.has_drafts = False
        self.words: torch.Tensor | None = None
        self.shared: SharedRows | None = None
        self.rows: tuple[RowRequest, ...] = ()
        self.drawn: Drawn | None = None
        self.inputs: Callable[[], StepInputs] | None = None
        self.left: Left | None = None
        self.proposed: Proposed | None = None
        self.round_s: float | None = None
        self.ends: list[Event] = []


class ModelRunner(Runner):
    """One model on one device.

    Args:
        model: the network.
        caches: its memory; block and slot numbers of plans point into it.
        sampler: draws tokens.
        stream: where steps run; closed with the runner.
        vocabulary: V.
        truncation: how the decoder half treats prompts; None keeps all rows.
        graphs: decode steps that are recorded; None: each is launched call by call. Without
            truncation only.
        stage: verifies and draws drafts; None: there are none.
    """

    def __init__(
        self,
        model: TextModel,
        caches: Caches,
        sampler: Sampler,
        stream: Stream,
        *,
        vocabulary: int,
        truncation: DecoderTruncation | None = None,
        graphs: RecordedSteps | None = None,
        stage: DraftStage | None = None,
    ) -> None:
        self.model = model
        self.caches = caches
        self.sampler = sampler
        self.vocabulary = vocabulary
        self.truncation = truncation
        self.graphs = graphs
        self.stage = stage
        self.device = model.parts.device
        self.stream = stream
        self._settings = SamplerInputs(vocabulary, self.device)
        self._plans: dict[tuple[int, int], Plan] = {}

    def launch(self, plan: StepPlan, before: StepHandle | None) -> StepHandle:
        """Queue a forward pass; see ``Runner``."""
        assert before is None or isinstance(before, ModelStep)
        step = ModelStep()
        step.has_drafts = any(one.scored_rows for one in plan.sequences)
        graphs = self.graphs
        rung = None if graphs is None else graphs.rung_of(plan)
        shape = None if graphs is None or rung is None else graphs.shape_of(rung)
        packed = PackedStep(plan, self.device, self.truncation, shape=shape)
        stage = self.stage
        feed = None if stage is None else stage.pack_feed(plan, may_share=rung is not None)

        prepare = partial(self._prepare, step, packed, feed, before)
        forward = partial(self._forward, step, plan, rung)

        def both() -> None:
            prepare()
            forward()

        if feed is None or feed.shared is None:
            step.ends.append(self.stream.submit(both))
        else:
            # Apart, so that the host knows who has which rows before the forward pass ends.
            step.shared = feed.shared
            step.ends += [self.stream.submit(prepare), self.stream.submit(forward)]
        return step

    @torch.inference_mode()
    def _prepare(
        self,
        step: ModelStep,
        packed: PackedStep,
        feed: PackedFeed | None,
        before: ModelStep | None,
    ) -> None:
        """Bring a step to the device, and fill in what only the device knows."""
        left, drawn = (before.left, before.drawn) if before is not None else (None, None)
        # Open rows that drafts have to do with come from ``left``, others from what was drawn.
        is_plain = feed is None or left is None
        words = packed.bring(drawn.out.token_R if is_plain and drawn is not None else None)
        inputs: StepInputs | None = None
        if self.stage is not None and feed is not None:
            inputs = packed.inputs(words)
            self.stage.settle(feed, inputs, left)
        step.inputs = lambda: inputs or packed.inputs(words)
        step.words = words

    @torch.inference_mode()
    def _forward(self, step: ModelStep, plan: StepPlan, rung: Rung | None) -> None:
        """Run a step that is prepared; one that is not says in ``results`` why."""
        words, step.words = step.words, None
        if step.inputs is None or words is None:
            return
        self.caches.copy_blocks(plan.block_copies)
        self.caches.copy_slots(plan.restored_slots)
        if self.graphs is None or rung is None:
            step.logits_RV = self.model.forward(step.inputs(), self.caches)
        else:
            step.logits_RV = self.graphs.run(rung, words)[: plan.rows]
        self.caches.copy_slots(plan.saved_slots)

    def sample(
        self,
        step: StepHandle,
        rows: tuple[RowRequest, ...],
        wanted: tuple[DraftRequest, ...] = (),
    ) -> None:
        """Queue the sampling and a round of drafts; see ``Runner``."""
        assert isinstance(step, ModelStep)
        if not rows:
            return
        step.rows = rows
        alternatives = min(max(row.settings.alternatives for row in rows), self.vocabulary)
        packed = self._settings.rows(rows)
        plan = self._sampler_plan(alternatives, len(rows))
        stage, drafts = self.stage, None
        if stage is not None and (wanted or step.has_drafts):
            drafts = stage.pack_drafts(rows, wanted)

        @torch.inference_mode()
        def work() -> None:
            logits_RV, step.logits_RV = step.logits_RV, None
            if logits_RV is None:
                return  # the forward pass failed, and says so in ``results``
            row_R, settings = packed.arrive()
            if len(rows) < logits_RV.shape[0]:
                logits_RV = logits_RV[row_R]
            drawn = Drawn(len(rows), alternatives, self.device, is_verified=drafts is not None)
            if stage is None or drafts is None:
                self.sampler.run(plan, logits_RV, settings, drawn.out)
            else:
                stage.verify(drafts, self.sampler, plan, logits_RV, settings, drawn)
                step.left = self._left(step, row_R, drawn)
            self.send(drawn)
            step.drawn = drawn

        step.ends.append(self.stream.submit(work))
        if stage is not None and drafts is not None and wanted:
            self._draft(step, stage, drafts)

    def shared_rows(self, step: StepHandle) -> tuple[int, ...] | None:
        """Who has which rows; see ``Runner``."""
        assert isinstance(step, ModelStep)
        if step.shared is None:
            return None
        step.ends[0].wait()
        return step.shared.rows()

    def draft_again(self, step: StepHandle, wanted: tuple[DraftRequest, ...]) -> None:
        """Queue another round behind a step that was sampled, to see how long it takes."""
        assert isinstance(step, ModelStep)
        assert self.stage is not None
        self._draft(step, self.stage, self.stage.pack_drafts(step.rows, wanted))

    def _draft(self, step: ModelStep, stage: DraftStage, drafts: PackedDrafts) -> None:
        """Queue the round of drafts behind the sampling."""

        @torch.inference_mode()
        def work() -> None:
            if step.drawn is None:
                return  # the sampling failed
            began_s = time.perf_counter()
            step.proposed = stage.propose(drafts, step.drawn)
            self.send(step.proposed)
            step.round_s = self._took_s(began_s)

        step.ends.append(self.stream.submit(work))

    def _took_s(self, began_s: float) -> float | None:
        """Seconds since, where the device's work is done when it returns."""
        return time.perf_counter() - began_s if self.device.torch_device.type == "cpu" else None

    def results(self, step: StepHandle) -> tuple[RowResult, ...]:
        """Wait; see ``Runner``."""
        assert isinstance(step, ModelStep)
        for end in step.ends:
            end.wait()
        return () if step.drawn is None else step.drawn.results(step.rows)

    def drafted(self, step: StepHandle) -> Drafted:
        """Drafts of a step whose results were given; see ``Runner``."""
        assert isinstance(step, ModelStep)
        results = () if step.proposed is None else step.proposed.results()
        return Drafted(results, step.round_s)

    def send(self, given: Drawn | Proposed) -> None:
        """Queue the copy of what a step gives to the host; called by work on the stream."""
        given.send()

    def drain(self) -> None:
        """Wait until the stream is empty."""
        self.stream.drain()

    def close(self) -> None:
        """Close the stream."""
        self.stream.close()

    @staticmethod
    def _left(step: ModelStep, row_R: torch.Tensor, drawn: Drawn) -> Left:
        """What the next step needs to know where it begins."""
        assert step.inputs is not None
        assert drawn.verdicts is not None
        inputs = step.inputs()
        return Left(
            inputs=inputs,
            row_R=inputs.sample_row_R[row_R],
            token_R=drawn.out.token_R,
            accepted_R=drawn.verdicts.accepted_R,
        )

    def _sampler_plan(self, alternatives: int, rows: int) -> Plan:
        # Sizes are rounded up to powers of two, so that few plans serve all steps.
        size = 1 << (rows - 1).bit_length()
        if (alternatives, size) not in self._plans:
            spec = SamplerSpec(vocabulary=self.vocabulary, alternatives=alternatives)
            self._plans[alternatives, size] = self.sampler.plan(spec, size)
        return self._plans[alternatives, size]
