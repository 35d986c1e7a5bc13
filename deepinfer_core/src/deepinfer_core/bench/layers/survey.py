"""What is measured in one run, and what comes of each load?

First the device's rates, then as many layers as fit are built, their caches are filled, and prompts
and decode steps of every size go through them. Each time stands next to its layer bound. A time of
the whole model is no measurement: it is what all layers would take at the share of the bound that
the layers here reached.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from deepinfer_core.bench.layers.bound import Rates, step_bound
from deepinfer_core.bench.layers.idle import traced
from deepinfer_core.bench.layers.loads import Decoding, Prompt
from deepinfer_core.bench.layers.opening import open_runner
from deepinfer_core.bench.layers.serving import decoding_engine
from deepinfer_core.bench.layers.timing import (
    decode_s,
    fill_caches,
    prepared,
    prompt_s,
    routed_experts,
)
from deepinfer_core.engine.decode_graphs import DecodeGraphs
from deepinfer_core.engine.readiness import can_record

if TYPE_CHECKING:
    from deepinfer_core.bench.layers.idle import Trace
    from deepinfer_core.bench.layers.room import Room
    from deepinfer_core.bench.layers.scales import Scale
    from deepinfer_core.bench.layers.work import Load, Storage
    from deepinfer_core.interfaces.sampler import Sampler
    from deepinfer_core.model.config import ModelConfig
    from deepinfer_core.model.parts import ModelParts
    from deepinfer_core.telemetry.progress import ProgressStream

__all__ = ["Measured", "Survey"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One load.

    Attributes:
        load: what was run.
        seconds: of a step, or from a prompt to its token.
        bound_s: the layer bound of that.
        whole_bound_s: the same with all layers of the model.
        experts: distinct routed experts of a layer that were used.
        is_recorded: the steps were repeated from a recording.
    """

    load: Decoding | Prompt
    seconds: float
    bound_s: float
    whole_bound_s: float
    experts: float
    is_recorded: bool = False

    @property
    def extrapolated_s(self) -> float:
        """The time of all layers, if they reach the same share of their bound."""
        return self.seconds * self.whole_bound_s / self.bound_s


class Survey:
    """Layers on a device, and what is measured on them.

    Args:
        scale: what is measured.
        parts: components and numerics.
        sampler: draws tokens.
        room: what is built.
        rates: of the device.
        storage: what the components keep.
        records: whether decode steps are recorded, if they can be.
        progress: told about the phases ``weights.load``, ``graphs.record`` and ``bench``.

    Attributes:
        built_s: seconds that drawing and preparing the weights took.

    Raises:
        NotSupported: a component lacks a format or width.
        DeviceError: there is not enough memory, or a step cannot be recorded.
    """

    def __init__(
        self,
        scale: Scale,
        parts: ModelParts,
        sampler: Sampler,
        room: Room,
        *,
        rates: Rates,
        storage: Storage,
        records: bool,
        progress: ProgressStream,
    ) -> None:
        self._scale, self._room, self._progress = scale, room, progress
        self._rates, self._storage = rates, storage
        began_s = time.perf_counter()
        with progress.phase("weights.load", 2 + len(room.layers), "parts") as phase:
            self._runner = open_runner(
                room.config,
                parts,
                sampler,
                num_blocks=1 + room.pool.blocks,
                num_slots=1 + max(scale.sequences),
                max_backtracking=max(scale.rows),
                tell=lambda name: phase.advance(1, name),
            )
        self.built_s = time.perf_counter() - began_s
        fill_caches(self._runner, room.pool, tokens=scale.filled, chunk=scale.chunk)
        self._graphs = self._recorded() if records and can_record(self._runner) else {}

    def measure(self) -> tuple[list[Measured], Trace | None]:
        """Run every load, and then an engine."""
        scale, measured = self._scale, []
        total = len(scale.prompts) + len(scale.decodings) + 1
        with self._progress.phase("bench", total, "loads") as phase:
            for item in chain(self._prompts(), self._decodings()):
                measured.append(item)
                phase.advance(1, str(item.load))
            trace = self._trace()
            phase.advance()
        return measured, trace

    def _prompts(self) -> Iterator[Measured]:
        """Time every prompt."""
        self._runner.graphs = None
        for tokens in self._scale.prompts:
            prompt = Prompt(tokens=tokens, chunk=self._scale.chunk)
            seconds = prompt_s(self._runner, prompt, self._room.pool, repeats=self._scale.repeats)
            experts = routed_experts(self._runner, prompt.plans(self._room.pool)[-1])
            yield self._measured(prompt, seconds, prompt.loads(experts))

    def _decodings(self) -> Iterator[Measured]:
        """Time every decode step."""
        for decoding in self._scale.decodings:
            steps = prepared(decoding, self._room.pool)
            graphs = self._runner.graphs = self._graphs.get(decoding.rows)
            decode_s(self._runner, steps)
            seconds = decode_s(self._runner, steps)
            last = decoding.plan(self._room.pool, decoding.steps - 1, is_first=True)
            experts = routed_experts(self._runner, last)
            is_recorded = graphs is not None and graphs.rung_of(last) is not None
            loads = [decoding.load(experts)]
            yield self._measured(decoding, seconds, loads, is_recorded=is_recorded)

    def _trace(self) -> Trace | None:
        """What the device does while an engine decodes; None where it has no record of it."""
        scale = self._scale
        self._runner.graphs = self._graphs.get(1)
        # All prompts in one step, of about the size of one that was run before.
        engine = decoding_engine(
            self._runner,
            self._room.pool,
            sequences=scale.traced,
            rows=min(scale.filled, scale.chunk),
            longest=max(scale.contexts),
            steps=scale.steps,
        )
        found = traced(self._runner.device, lambda: [engine.step() for _ in range(scale.steps)])
        engine.reset()
        return found

    def close(self) -> None:
        """Give the stream back."""
        self._runner.close()

    def _measured(
        self,
        load: Decoding | Prompt,
        seconds: float,
        loads: list[Load],
        *,
        is_recorded: bool = False,
    ) -> Measured:
        return Measured(
            load=load,
            seconds=seconds,
            bound_s=self._bound_s(self._room.config, loads),
            whole_bound_s=self._bound_s(self._scale.config, loads),
            experts=loads[-1].experts,
            is_recorded=is_recorded,
        )

    def _bound_s(self, config: ModelConfig, loads: list[Load]) -> float:
        return sum(step_bound(config, load, self._storage, self._rates).seconds for load in loads)

    def _recorded(self) -> dict[int, DecodeGraphs]:
        """Recordings by the rows that a sequence feeds: an engine has those of one number."""
        scale = self._scale
        made = {
            rows: DecodeGraphs(
                self._runner.model,
                self._runner.caches,
                max_sequences=max(scale.sequences),
                max_tokens=max(scale.contexts),
                block_tokens=self._room.pool.block_tokens,
                rows_each=rows,
                row_counts=[rows * sequences for sequences in scale.sequences],
            )
            # The engine whose steps are looked at feeds one row.
            for rows in sorted({1, *scale.rows}, reverse=True)
        }
        total = sum(len(graphs.rungs) for graphs in made.values())
        with self._progress.phase("graphs.record", total, "graphs") as phase:
            for graphs in made.values():
                graphs.record(lambda rung: phase.advance())
        return {rows: graphs for rows, graphs in made.items() if graphs.recorded}
