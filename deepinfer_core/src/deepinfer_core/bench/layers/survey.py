"""What is measured in one run, and what comes of each load?

First the device's rates, then as many layers as fit are built, their caches are filled, and prompts
and decode steps of every size go through them. Each time stands next to its layer bound. A time of
the whole model is no measurement: it is what all layers would take at the share of the bound that
the layers here reached.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepinfer_core.bench.layers.bound import step_bound
from deepinfer_core.bench.layers.depth import layer_bytes, pick_layers, shallow_config
from deepinfer_core.bench.layers.idle import traced
from deepinfer_core.bench.layers.loads import Decoding, Pool, Prompt
from deepinfer_core.bench.layers.opening import BLOCK_TOKENS, open_runner, storage_of
from deepinfer_core.bench.layers.rates import measured_rates
from deepinfer_core.bench.layers.serving import decoding_engine
from deepinfer_core.bench.layers.timing import (
    decode_s,
    fill_caches,
    prepared,
    prompt_s,
    routed_experts,
)
from deepinfer_core.engine.decode_graphs import DecodeGraphs
from deepinfer_core.errors import DeviceError
from deepinfer_core.model.caches import model_cache_layout

if TYPE_CHECKING:
    from deepinfer_core.bench.layers.idle import Trace
    from deepinfer_core.bench.layers.operators import Load
    from deepinfer_core.bench.layers.scales import Scale
    from deepinfer_core.interfaces.sampler import Sampler
    from deepinfer_core.model.config import ModelConfig
    from deepinfer_core.model.parts import ModelParts

__all__ = ["Measured", "Survey"]

_FREE_SHARE = 0.1
"""Of the free memory, for activations and for the experts of a layer while they are prepared."""
_POOL_SHARE = 0.06
"""Of the free memory, what blocks may take: texts that are longer together share some."""
_FILL_TOKENS = 4096


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
    """A device, and as many layers on it as fit.

    Args:
        scale: what is measured.
        parts: components and numerics.
        sampler: draws tokens.
        records: whether decode steps are recorded.
        tell: told what is done, in words.

    Attributes:
        config: of the model that is built.
        layers: numbers of its layers in the whole model.
        rates: of the device.
        storage: what the components keep.
        built_s: seconds that drawing and preparing the weights took.

    Raises:
        DeviceError: not even one layer of each kind fits.
    """

    def __init__(
        self,
        scale: Scale,
        parts: ModelParts,
        sampler: Sampler,
        *,
        records: bool,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._scale, self._tell = scale, tell
        tell("measuring the device")
        self.rates = measured_rates(parts.device, copy_bytes=scale.copy_bytes, side=scale.side)
        self.storage = storage_of(scale.config, parts)
        self._blocks = self._pool_blocks(parts)
        self.layers = pick_layers(scale.config, scale.layers or self._fitting(parts))
        self.config = shallow_config(scale.config, self.layers, table_rows=scale.table_rows)
        tell(f"building {len(self.layers)} layers")
        began_s = time.perf_counter()
        self._runner = open_runner(
            self.config,
            parts,
            sampler,
            num_blocks=1 + self._blocks,
            num_slots=1 + max(scale.sequences),
            max_backtracking=max(scale.rows),
        )
        self.built_s = time.perf_counter() - began_s
        self._pool = Pool(
            blocks=self._blocks,
            block_tokens=BLOCK_TOKENS,
            vocabulary=self.config.text_config.vocab_size,
        )
        tell("filling the caches")
        tokens = min(_FILL_TOKENS, self._blocks * BLOCK_TOKENS, scale.longest)
        fill_caches(self._runner, self._pool, tokens=tokens, chunk=scale.chunk)
        self._graphs = self._recorded() if records else None

    def prompts(self) -> Iterator[Measured]:
        """Time every prompt."""
        self._runner.graphs = None
        for tokens in self._scale.prompts:
            prompt = Prompt(tokens=tokens, chunk=self._scale.chunk)
            self._tell(f"prompt of {tokens} tokens")
            seconds = prompt_s(self._runner, prompt, self._pool, repeats=self._scale.repeats)
            experts = routed_experts(self._runner, prompt.plans(self._pool)[-1])
            yield self._measured(prompt, seconds, prompt.loads(experts))

    def decodings(self) -> Iterator[Measured]:
        """Time every decode step."""
        for decoding in self._scale.decodings:
            self._tell(str(decoding))
            steps = prepared(decoding, self._pool)
            # Recordings are of steps of one row; others are launched piece by piece.
            self._runner.graphs = self._graphs if decoding.rows == 1 else None
            decode_s(self._runner, steps)
            seconds = decode_s(self._runner, steps)
            last = decoding.plan(self._pool, decoding.steps - 1, is_first=True)
            experts = routed_experts(self._runner, last)
            yield self._measured(decoding, seconds, [decoding.load(experts)])

    def trace(self, sequences: int) -> Trace | None:
        """What the device does while an engine decodes; None where it has no record of it.

        Args:
            sequences: requests, at most as many as the largest decode load has.
        """
        scale = self._scale
        self._tell(f"an engine with {sequences} requests")
        self._runner.graphs = self._graphs
        engine = decoding_engine(
            self._runner,
            self._pool,
            sequences=sequences,
            prompt_tokens=min(scale.prompts),
            steps=scale.steps,
            chunk=scale.chunk,
        )
        found = traced(self._runner.device, lambda: [engine.step() for _ in range(scale.steps)])
        engine.reset()
        return found

    def close(self) -> None:
        """Give the stream back."""
        self._runner.close()

    def _measured(self, load: Decoding | Prompt, seconds: float, loads: list[Load]) -> Measured:
        return Measured(
            load=load,
            seconds=seconds,
            bound_s=self._bound_s(self.config, loads),
            whole_bound_s=self._bound_s(self._scale.config, loads),
            experts=loads[-1].experts,
            is_recorded=self._runner.graphs is not None,
        )

    def _bound_s(self, config: ModelConfig, loads: list[Load]) -> float:
        return sum(step_bound(config, load, self.storage, self.rates).seconds for load in loads)

    def _pool_blocks(self, parts: ModelParts) -> int:
        """Blocks for all texts, if they take no more than their share."""
        scale = self._scale
        layout = model_cache_layout(
            scale.config, parts.numerics, parts.codec, max_backtracking=max(scale.rows)
        )
        most = int(_POOL_SHARE * parts.device.memory().free_bytes) // layout.block.stride_bytes
        wanted = max(scale.sequences) * -(-scale.longest // BLOCK_TOKENS)
        # One text shares no block with itself.
        return max(min(most, wanted), -(-scale.longest // BLOCK_TOKENS))

    def _fitting(self, parts: ModelParts) -> int:
        """Layers that fit beside caches and activations, at most all."""
        config, scale = self._scale.config, self._scale
        layout = model_cache_layout(
            config, parts.numerics, parts.codec, max_backtracking=max(scale.rows)
        )
        states = (1 + max(scale.sequences)) * layout.state.stride_bytes
        caches = (1 + self._blocks) * layout.block.stride_bytes + states
        layer, outside = layer_bytes(config, self.storage)
        free = parts.device.memory().free_bytes
        count = int(((1 - _FREE_SHARE) * free - caches - outside) // layer)
        if count < 1:
            raise DeviceError(
                f"asked for layers of {layer:.0f} bytes beside {caches + outside:.0f} bytes, found"
                f" {free} bytes free",
                hint="free some, or ask for --scale small",
            )
        return min(count, config.text_config.num_hidden_layers)

    def _recorded(self) -> DecodeGraphs | None:
        scale = self._scale
        self._tell("recording decode steps")
        graphs = DecodeGraphs(
            self._runner.model,
            self._runner.caches,
            max_sequences=max(scale.sequences),
            max_tokens=max(scale.contexts),
            block_tokens=BLOCK_TOKENS,
            row_counts=scale.sequences,
        )
        graphs.record()
        return graphs if graphs.recorded else None
