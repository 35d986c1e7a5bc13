"""Which decode steps does the device repeat from a recording, instead of being told every launch?

Where each sequence feeds one row, a step of so many rows is the same launches every time; only
numbers in memory differ. So one recording for each *rung* of a ladder of sizes serves all such
steps: they are padded with rows that write into the dummy pages, up to the next number of rows and
the next reach. The reach is the highest position that a recording can feed; score rows and block
tables of the recording are as wide as it needs, whatever is visible in the step itself.

What the host decides in a forward pass is decided once, when the rung is recorded, so it has to
hold for every step that follows. The recorded step feeds the highest position, begins at its first
valid one and behind all that is cached: then no mask is left out that another step may need.

Shapes: T rows of a rung, V vocabulary.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from deepinfer_core.cache.storage import Caches
from deepinfer_core.engine.step_tensors import PackedStep, StepShape
from deepinfer_core.interfaces.device import Graph
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.step import StepInputs
from deepinfer_core.schedule.plan import SequenceStep, StepPlan

__all__ = ["DecodeGraphs", "Rung", "reach_rungs", "row_rungs"]

_LOWEST_REACH = 4096
_REACH_FACTOR = 8
"""Three recordings a row count serve a context of a million tokens; scores are as wide as reach."""


@dataclass(frozen=True, slots=True)
class Rung:
    """The size of one recording.

    Attributes:
        rows: sequences, one row each.
        reach: highest position that a row may have.
    """

    rows: int
    reach: int


def row_rungs(most: int) -> list[int]:
    """Row counts of recordings up to ``most``: powers of two and what lies halfway, then ``most``.

    A step is padded by less than a half, and the ladder has two rungs for each doubling.
    """
    powers = [1 << power for power in range(most.bit_length())]
    halves = [3 * power for power in powers]
    return sorted({size for size in (*powers, *halves) if size < most} | {most})


def reach_rungs(most_tokens: int, block_tokens: int) -> list[int]:
    """Highest positions of recordings: whole blocks, the last for texts of ``most_tokens``.

    Args:
        most_tokens: longest text, at least 1.
        block_tokens: tokens of a block, a multiple of every entry's tokens.
    """
    last = -(-most_tokens // block_tokens) * block_tokens
    rungs, reach = [], -(-_LOWEST_REACH // block_tokens) * block_tokens
    while reach < last:
        rungs.append(reach)
        reach *= _REACH_FACTOR
    return [*rungs, last]


class DecodeGraphs:
    """The recordings of one model over its caches.

    Args:
        model: the network; its components promise ``graph_safe``.
        caches: what it runs over.
        max_sequences: most rows.
        max_tokens: longest text.
        block_tokens: tokens of a block.
        row_counts: sizes to record, the largest ``max_sequences``; None: those of ``row_rungs``.

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
        row_counts: Sequence[int] | None = None,
    ) -> None:
        self._model = model
        self._caches = caches
        self._block_tokens = block_tokens
        self._rows = row_rungs(max_sequences) if row_counts is None else sorted(row_counts)
        self._reaches = reach_rungs(max_tokens, block_tokens)
        self._recordings: dict[Rung, _Recording] = {}

    @property
    def recorded(self) -> int:
        """How many recordings there are."""
        return len(self._recordings)

    @property
    def rungs(self) -> list[Rung]:
        """All sizes, the largest first: memory and plans of the first serve all others."""
        return [Rung(rows, reach) for rows in self._rows[::-1] for reach in self._reaches[::-1]]

    @torch.inference_mode()
    def record(self, tell: Callable[[Rung], None] | None = None) -> None:
        """Record every rung; nothing is recorded on a device without graphs.

        Args:
            tell: called with each rung that was recorded.

        Raises:
            DeviceError: the device cannot record a step.
        """
        device, logits_TV = self._model.parts.device, None
        for rung in self.rungs:
            words, inputs = self._inputs(rung)
            first_TV = self._model.forward(inputs, self._caches)
            logits_TV = first_TV.clone() if logits_TV is None else logits_TV
            out_TV = logits_TV[: rung.rows]

            device.synchronise()
            graph = device.graph(partial(self._step, inputs, out_TV))
            if graph is None:
                return
            self._recordings[rung] = _Recording(graph, words, out_TV)
            if tell is not None:
                tell(rung)

    @torch.inference_mode()
    def rehearse(self) -> None:
        """Run the step of every rung once, and record none."""
        for rung in self.rungs:
            self._model.forward(self._inputs(rung)[1], self._caches)

    def rung_of(self, plan: StepPlan) -> Rung | None:
        """The smallest recording that can do a step; None: it is launched piece by piece."""
        steps = plan.sequences
        if not self._recordings or len(steps) > self._rows[-1] or not all(map(_is_plain, steps)):
            return None
        highest = max(step.start for step in steps)
        blocks = max(len(step.block_ids) for step in steps) - 1
        wanted = max(highest, blocks * self._block_tokens)
        if wanted > self._reaches[-1]:
            return None
        rows = self._rows[bisect_left(self._rows, len(steps))]
        return Rung(rows, self._reaches[bisect_left(self._reaches, wanted)])

    def shape_of(self, rung: Rung) -> StepShape:
        """What a step of the rung is padded to."""
        return StepShape(sequences=rung.rows, blocks=rung.reach // self._block_tokens + 1)

    def run(self, rung: Rung, words: torch.Tensor) -> torch.Tensor:
        """Do a step; called by work on a stream.

        Args:
            rung: of the step.
            words: the packed step on the device.

        Returns:
            Logits [T, V] of all rows, padding too; overwritten by the next step.
        """
        recording = self._recordings[rung]
        recording.words.copy_(words[: recording.words.shape[0]])
        recording.graph.replay()
        return recording.logits_TV

    def _inputs(self, rung: Rung) -> tuple[torch.Tensor, StepInputs]:
        """The words of the largest step of a rung, and the inputs that lie in them."""
        device = self._model.parts.device
        packed = PackedStep(_largest(rung), device, shape=self.shape_of(rung))
        words = packed.bring(None)
        return words, packed.inputs(words)

    def _step(self, inputs: StepInputs, out_TV: torch.Tensor) -> None:
        out_TV.copy_(self._model.forward(inputs, self._caches))


@dataclass(frozen=True, slots=True)
class _Recording:
    """A graph, the packed step that it reads, and where it leaves logits."""

    graph: Graph
    words: torch.Tensor
    logits_TV: torch.Tensor


def _largest(rung: Rung) -> StepPlan:
    """A step that no step of the rung exceeds, over the dummy pages."""
    step = SequenceStep(
        sequence_id=0,
        start=rung.reach,
        token_ids=(0,),
        history=(0, 0, 0),
        block_ids=(0,),
        state_slot=0,
        wants_token=True,
        cached_end=rung.reach,
        valid_start=rung.reach,
    )
    return StepPlan((step,) * rung.rows)


def _is_plain(step: SequenceStep) -> bool:
    """Whether a sequence feeds one row, is asked for its token, and replays nothing."""
    return (
        len(step.token_ids) == 1
        and step.wants_token
        and not step.scored_rows
        and max(step.cached_end, step.valid_start) <= step.start
    )
