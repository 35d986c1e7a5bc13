"""How does a plan become tensors, and how do logits become results?

Only this module and ``sampler_inputs`` of the engine know tensors. A step is work on one stream of
the device: copies, forward pass and, queued later, sampling. Tokens that the step before drew are
taken from its outputs on the device. Results come to the host once.

Shapes: T rows of the step, Q sequences, B blocks of the longest sequence, R sampled rows, V
vocabulary, A alternatives.
"""

from __future__ import annotations

from itertools import chain, repeat

import numpy as np
import torch

from deepinfer_core.cache.replay import DecoderTruncation
from deepinfer_core.cache.storage import Caches
from deepinfer_core.engine.rows import RowRequest, RowResult, Runner, StepHandle
from deepinfer_core.engine.sampler_inputs import SamplerInputs
from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.device import Device, Event, Stream
from deepinfer_core.interfaces.sampler import Sampler, SamplerOutputs, SamplerSpec
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.step import StepInputs
from deepinfer_core.schedule.plan import SequenceStep, StepPlan

__all__ = ["ModelRunner", "step_inputs"]


class _ModelStep(StepHandle):
    """A step on the stream.

    Attributes:
        logits_RV: of the rows that the plan wants; gone when they were sampled.
        rows: what is sampled.
        out: of the sampler, when it ran.
        ends: of the forward pass, and of the sampling if rows are sampled.
    """

    __slots__ = ("ends", "logits_RV", "out", "rows")

    def __init__(self) -> None:
        self.logits_RV: torch.Tensor | None = None
        self.rows: tuple[RowRequest, ...] = ()
        self.out: SamplerOutputs | None = None
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
    ) -> None:
        self.model = model
        self.caches = caches
        self.sampler = sampler
        self.vocabulary = vocabulary
        self.truncation = truncation
        self.device = model.parts.device
        self._stream = stream
        self._settings = SamplerInputs(vocabulary, self.device.torch_device)
        self._plans: dict[tuple[int, int], Plan] = {}

    def launch(self, plan: StepPlan, before: StepHandle | None) -> StepHandle:
        """Queue a forward pass; see ``Runner``."""
        assert before is None or isinstance(before, _ModelStep)
        step = _ModelStep()
        inputs = step_inputs(plan, self.device, self.truncation)
        open_2U = _open_tokens(plan, self.device)

        @torch.inference_mode()
        def work() -> None:
            self.caches.copy_blocks(plan.block_copies)
            self.caches.copy_slots(plan.restored_slots)
            if open_2U is not None and before is not None and before.out is not None:
                row_U, drawn_U = open_2U
                inputs.token_T[row_U] = before.out.token_R[drawn_U]
            step.logits_RV = self.model.forward(inputs, self.caches)
            self.caches.copy_slots(plan.saved_slots)

        step.ends.append(self._stream.submit(work))
        return step

    def sample(self, step: StepHandle, rows: tuple[RowRequest, ...]) -> None:
        """Queue the sampling; see ``Runner``."""
        assert isinstance(step, _ModelStep)
        if not rows:
            return
        step.rows = rows
        alternatives = min(max(row.settings.alternatives for row in rows), self.vocabulary)
        settings = self._settings.rows(rows)
        row_R = _staged([np.array([row.row for row in rows])], self.device)[0]
        plan = self._sampler_plan(alternatives, len(rows))

        @torch.inference_mode()
        def work() -> None:
            logits_RV, step.logits_RV = step.logits_RV, None
            if logits_RV is None:
                return  # the forward pass failed, and says so in ``results``
            if len(rows) < logits_RV.shape[0]:
                logits_RV = logits_RV[row_R]
            out = _outputs(len(rows), alternatives, logits_RV.device)
            self.sampler.run(plan, logits_RV, settings, out)
            step.out = out

        step.ends.append(self._stream.submit(work))

    def results(self, step: StepHandle) -> tuple[RowResult, ...]:
        """Wait; see ``Runner``."""
        assert isinstance(step, _ModelStep)
        for end in step.ends:
            end.wait()
        return () if step.out is None else _results(step.rows, step.out)

    def drain(self) -> None:
        """Wait until the stream is empty."""
        self._stream.drain()

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()

    def _sampler_plan(self, alternatives: int, rows: int) -> Plan:
        # Sizes are rounded up to powers of two, so that few plans serve all steps.
        size = 1 << (rows - 1).bit_length()
        if (alternatives, size) not in self._plans:
            spec = SamplerSpec(vocabulary=self.vocabulary, alternatives=alternatives)
            self._plans[alternatives, size] = self.sampler.plan(spec, size)
        return self._plans[alternatives, size]


def step_inputs(
    plan: StepPlan, device: Device, truncation: DecoderTruncation | None = None
) -> StepInputs:
    """Turn a plan into the model's inputs.

    Args:
        plan: at least one sequence; unknown tokens stay open.
        device: where the tensors go.
        truncation: how the decoder half treats prompts.
    """
    steps = plan.sequences
    counts = [len(step.token_ids) for step in steps]
    token_T, previous_T3 = _tokens(steps)
    sequence_T, position_T = _places([step.start for step in steps], counts)
    arrays = [
        token_T,
        position_T,
        sequence_T,
        previous_T3,
        _block_table([step.block_ids for step in steps]),
        np.array([step.state_slot for step in steps]),
        np.array(plan.wanted_rows()),
    ]
    token, position, sequence, previous, table, slot, wanted = _staged(arrays, device)
    no_image_T3 = torch.zeros_like(previous, dtype=torch.bool)
    return StepInputs(
        token_T=token,
        position_T=position,
        sequence_T=sequence,
        previous_T3=previous,
        image_T=torch.zeros_like(token, dtype=torch.bool),
        image_previous_T3=no_image_T3,
        embedding_TD=None,
        block_table_QB=table,
        state_slot_Q=slot,
        starts=tuple(step.start for step in steps),
        row_counts=tuple(counts),
        valid_starts=tuple(step.valid_start for step in steps),
        sample_row_R=wanted,
        cached_ends=tuple(step.cached_end for step in steps),
        truncation=truncation,
        keep_from=tuple(step.keep_from for step in steps),
    )


def _places(starts: list[int], counts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Sequence and position of each row."""
    start_Q = np.array(starts)
    if max(counts) == 1:
        return np.arange(len(starts)), start_Q
    offset_Q = np.cumsum([0, *counts[:-1]])
    sequence_T = np.repeat(np.arange(len(starts)), counts)
    return sequence_T, np.arange(sum(counts)) + (start_Q - offset_Q)[sequence_T]


def _tokens(steps: tuple[SequenceStep, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Ids of the rows [rows], and the ids at distance 1, 2 and 3 before each [rows, 3]."""
    if all(len(step.token_ids) == 1 for step in steps):
        tokens = np.array([step.token_ids[0] for step in steps], dtype=np.int64)
        return tokens, np.array([step.history for step in steps], dtype=np.int64)
    previous = np.concatenate([_previous(step) for step in steps])
    return np.concatenate([np.array(s.token_ids, dtype=np.int64) for s in steps]), previous


def _block_table(blocks: list[tuple[int, ...]]) -> np.ndarray:
    """Blocks of all sequences [sequences, blocks of the longest], padded with -1."""
    counts_Q = np.array([len(one) for one in blocks])
    is_used_QB = np.arange(counts_Q.max()) < counts_Q[:, None]
    table_QB = np.full(is_used_QB.shape, -1, dtype=np.int64)
    table_QB[is_used_QB] = np.fromiter(chain.from_iterable(blocks), np.int64, counts_Q.sum())
    return table_QB


def _previous(step: SequenceStep) -> np.ndarray:
    known = np.array([*reversed(step.history), *step.token_ids], dtype=np.int64)
    count = len(step.token_ids)
    # Row i stands at place i + 3 of ``known``, so distance d at i + 3 - d.
    return np.stack([known[3 - distance : 3 - distance + count] for distance in (1, 2, 3)], axis=1)


def _open_tokens(plan: StepPlan, device: Device) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Rows whose token is open, and the place of each among the rows drawn before."""
    places: list[tuple[int, int]] = []
    end = 0
    for step in plan.sequences:
        end += len(step.token_ids)
        if step.drawn_index >= 0:
            places.append((end - 1, step.drawn_index))
    if not places:
        return None
    row_U, drawn_U = _staged([np.array(column) for column in zip(*places, strict=True)], device)
    return row_U, drawn_U


def _staged(arrays: list[np.ndarray], device: Device) -> list[torch.Tensor]:
    """Bring integer arrays to the device in one copy from one host buffer."""
    sizes = [array.size for array in arrays]
    buffer = device.host_buffer((sum(sizes),), torch.int64)
    np.concatenate([array.reshape(-1) for array in arrays], out=buffer.numpy(), casting="unsafe")
    moved = buffer.to(device.torch_device, non_blocking=True)
    parts = moved.split_with_sizes(sizes)
    return [
        part if array.ndim == 1 else part.view(array.shape)
        for part, array in zip(parts, arrays, strict=True)
    ]


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
    tops = map(_top, rows, top_tokens, top_logprobs) if out.top_token_RA.shape[1] else repeat(())
    return tuple(map(RowResult, tokens, logprobs, processed, tops, invalid))


def _top(
    row: RowRequest, tokens: list[int], logprobs: list[float]
) -> tuple[tuple[int, float], ...]:
    count = row.settings.alternatives
    return tuple(zip(tokens[:count], logprobs[:count], strict=True)) if count else ()
