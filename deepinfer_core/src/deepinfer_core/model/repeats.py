"""Which decode steps are alike, so that their calls are noted once and made again?

A plain decode step depends on numbers in tensors, and on a few sizes: rows, blocks of the longest
sequence, width of the scores. The second step of the same sizes is recorded, by the recorder that
all components of the model name; later ones copy their tensors to where the recorded one had them
and repeat its calls. Scores have room for more entries than are visible, so that sizes change
seldom; entries that no row sees are never chosen.

Results are those of the calls themselves, bit for bit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from deepinfer_core.cache.storage import Caches
from deepinfer_core.interfaces.recording import Recorder, Recording
from deepinfer_core.model.context import StepContext
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.model.step_tensors import step_tensors, with_tensors

__all__ = ["MOST_BYTES", "StepRepeats", "shared_recorder"]

MOST_BYTES = 64 << 20
"""What all recordings of a model may keep alive."""

_LEAST_VISIBLE = 256
"""Scores are at least so wide in steps that are repeated."""

_MOST_SIZES = 4096
"""More sizes are forgotten, and may be recorded anew."""

Result = TypeVar("Result")

_Sizes = tuple[int, ...]
"""Rows, sequences, blocks of the longest, and width of the scores by ratio: all that steps differ
in but for numbers in tensors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Repeat(Generic[Result]):
    """A recorded step: where it reads its tensors, and what it leaves."""

    tensors: list[torch.Tensor]
    recording: Recording
    result: Result


class StepRepeats(Generic[Result]):
    """The recorded steps of one model. Steps run one after the other.

    Args:
        recorder: sees the calls of all components of the model.
        work: the forward pass of a step; keeps to tensors of ``step_tensors``.
    """

    def __init__(self, recorder: Recorder, work: Callable[[StepContext], Result]) -> None:
        self._recorder = recorder
        self._work = work
        self._caches: Caches | None = None
        self._seen: set[_Sizes] = set()
        self._refused: set[_Sizes] = set()
        self._repeats: dict[_Sizes, _Repeat[Result]] = {}

    def run(self, step: StepContext) -> Result:
        """Do the work on a plain decode step; its tensors in the result last until the next call.

        Args:
            step: a plain decode step.
        """
        if step.caches is not self._caches:
            self._caches = step.caches
            self.clear()
        tensors = step_tensors(step)
        visible = {ratio: _rounded_up(one.most_visible) for ratio, one in step.entries.items()}
        inputs = step.inputs
        key = (inputs.token_T.shape[0], *inputs.block_table_QB.shape, *visible.values())
        repeat = self._repeats.get(key)
        if repeat is not None:
            torch._foreach_copy_(repeat.tensors, tensors)
            repeat.recording.repeat()
            return repeat.result
        if key not in self._seen or key in self._refused:
            if len(self._seen) >= _MOST_SIZES:
                self._forget()
            self._seen.add(key)
            return self._work(step)
        kept = [tensor.clone() for tensor in tensors]
        return self._record(key, with_tensors(step, kept, visible), kept)

    def clear(self) -> None:
        """Give all recordings away; steps are recorded anew."""
        self._repeats = {}
        self._forget()

    def _record(self, key: _Sizes, step: StepContext, tensors: list[torch.Tensor]) -> Result:
        results: list[Result] = []
        recording = self._recorder.record(lambda: results.append(self._work(step)))
        [result] = results
        if recording is None or recording.memory_bytes > MOST_BYTES:
            self._refused.add(key)
        else:
            self._repeats[key] = _Repeat(tensors=tensors, recording=recording, result=result)
            self._make_room()
        return result

    def _forget(self) -> None:
        self._seen, self._refused = set(), set()

    def _make_room(self) -> None:
        """Give the oldest recordings away while all together keep too much."""
        sizes = {key: one.recording.memory_bytes for key, one in self._repeats.items()}
        excess = sum(sizes.values()) - MOST_BYTES
        for key, size in sizes.items():
            if excess <= 0:
                break
            del self._repeats[key]
            excess -= size


def shared_recorder(parts: ModelParts) -> Recorder | None:
    """The recorder that all components of a decode step name; None if they do not name one."""
    components = (
        *(parts.decode, parts.indexer, parts.codec, parts.transform),
        *(parts.dense, parts.grouped, parts.all_to_all),
    )
    named = {component.recorder for component in components}
    return named.pop() if len(named) == 1 else None


def _rounded_up(entries: int) -> int:
    """An eighth more at most, beyond the least, in steps that grow with the number."""
    step = max(_LEAST_VISIBLE, 1 << max(entries.bit_length() - 4, 0))
    return -(-entries // step) * step
