"""How does a plan become tensors, and how do logits become results?

Only this module and ``sampler_inputs`` of the engine know tensors. One step is one forward pass and
one call of the sampler; results come to the host once.

Shapes: T rows of the step, Q sequences, B blocks of the longest sequence, R sampled rows, V
vocabulary, A alternatives.
"""

from __future__ import annotations

import numpy as np
import torch

from deepinfer_core.cache.storage import Caches
from deepinfer_core.engine.rows import RowRequest, RowResult, Runner
from deepinfer_core.engine.sampler_inputs import sampler_rows
from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.sampler import Sampler, SamplerOutputs, SamplerSpec
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.step import StepInputs
from deepinfer_core.schedule.plan import SequenceStep, StepPlan

__all__ = ["ModelRunner", "step_inputs"]


class ModelRunner(Runner):
    """One model on one device.

    Args:
        model: the network.
        caches: its memory; block and slot numbers of plans point into it.
        sampler: draws tokens.
        vocabulary: V.
    """

    def __init__(
        self, model: TextModel, caches: Caches, sampler: Sampler, *, vocabulary: int
    ) -> None:
        self.model = model
        self.caches = caches
        self.sampler = sampler
        self.vocabulary = vocabulary
        self.device = model.parts.device.torch_device
        self._plans: dict[tuple[int, int], Plan] = {}

    @torch.inference_mode()
    def execute(self, plan: StepPlan, rows: tuple[RowRequest, ...]) -> tuple[RowResult, ...]:
        """Run a step; see ``Runner``."""
        inputs = step_inputs(plan, [row.row for row in rows], self.device)
        logits_RV = self.model.forward(inputs, self.caches)
        return self._sample(logits_RV, rows) if rows else ()

    def _sample(
        self, logits_RV: torch.Tensor, rows: tuple[RowRequest, ...]
    ) -> tuple[RowResult, ...]:
        alternatives = min(max(row.alternatives for row in rows), self.vocabulary)
        out = _outputs(len(rows), alternatives, self.device)
        plan = self._sampler_plan(alternatives, len(rows))
        settings = sampler_rows(rows, self.vocabulary, self.device)
        self.sampler.run(plan, logits_RV, settings, out)
        return _results(rows, out)

    def _sampler_plan(self, alternatives: int, rows: int) -> Plan:
        # Sizes are rounded up to powers of two, so that few plans serve all steps.
        size = 1 << (rows - 1).bit_length()
        if (alternatives, size) not in self._plans:
            spec = SamplerSpec(vocabulary=self.vocabulary, alternatives=alternatives)
            self._plans[alternatives, size] = self.sampler.plan(spec, size)
        return self._plans[alternatives, size]


def step_inputs(plan: StepPlan, sampled: list[int], device: torch.device) -> StepInputs:
    """Turn a plan into the model's inputs.

    Args:
        plan: at least one sequence.
        sampled: rows of the step whose logits are wanted.
        device: where the tensors go.
    """
    steps = plan.sequences
    counts = [len(step.token_ids) for step in steps]
    longest = max(len(step.block_ids) for step in steps)
    table_QB = np.full((len(steps), longest), -1, dtype=np.int64)
    for number, step in enumerate(steps):
        table_QB[number, : len(step.block_ids)] = step.block_ids
    previous_T3 = np.concatenate([_previous(step) for step in steps])
    position_T = np.concatenate(
        [np.arange(step.start, step.start + len(step.token_ids)) for step in steps]
    )

    def on_device(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array.astype(np.int64, copy=False)).to(device)

    no_image_T3 = torch.zeros(previous_T3.shape, dtype=torch.bool, device=device)
    return StepInputs(
        token_T=on_device(np.concatenate([step.token_ids for step in steps])),
        position_T=on_device(position_T),
        sequence_T=on_device(np.repeat(np.arange(len(steps)), counts)),
        previous_T3=on_device(previous_T3),
        image_T=no_image_T3[:, 0].clone(),
        image_previous_T3=no_image_T3,
        embedding_TD=None,
        block_table_QB=on_device(table_QB),
        state_slot_Q=on_device(np.array([step.state_slot for step in steps])),
        starts=tuple(step.start for step in steps),
        row_counts=tuple(counts),
        valid_starts=(0,) * len(steps),
        sample_row_R=on_device(np.array(sampled, dtype=np.int64)),
    )


def _previous(step: SequenceStep) -> np.ndarray:
    """Ids at distance 1, 2 and 3 before each row, [rows, 3]."""
    known = np.array([*reversed(step.history), *step.token_ids], dtype=np.int64)
    count = len(step.token_ids)
    # Row i stands at place i + 3 of ``known``, so distance d at i + 3 - d.
    return np.stack([known[3 - distance : 3 - distance + count] for distance in (1, 2, 3)], axis=1)


def _outputs(rows: int, alternatives: int, device: torch.device) -> SamplerOutputs:
    def empty(*shape: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    return SamplerOutputs(
        token_R=empty(rows, dtype=torch.int64),
        logprob_R=empty(rows, dtype=torch.float32),
        processed_logprob_R=empty(rows, dtype=torch.float32),
        top_token_RA=empty(rows, alternatives, dtype=torch.int64),
        top_logprob_RA=empty(rows, alternatives, dtype=torch.float32),
        invalid_R=empty(rows, dtype=torch.bool),
    )


def _results(rows: tuple[RowRequest, ...], out: SamplerOutputs) -> tuple[RowResult, ...]:
    tokens, invalid = out.token_R.tolist(), out.invalid_R.tolist()
    logprobs, processed = out.logprob_R.tolist(), out.processed_logprob_R.tolist()
    top_tokens, top_logprobs = out.top_token_RA.tolist(), out.top_logprob_RA.tolist()
    return tuple(
        RowResult(
            token_id=tokens[i],
            logprob=logprobs[i],
            processed_logprob=processed[i],
            top=tuple(
                zip(
                    top_tokens[i][: row.alternatives],
                    top_logprobs[i][: row.alternatives],
                    strict=True,
                )
            ),
            invalid=invalid[i],
        )
        for i, row in enumerate(rows)
    )
