"""How does a test run requests through a real engine over a real, very small model?

The model is random, of the true architecture, and as small as that allows: one layer that only has
a window, one of ratio 2 with an Engram, two of ratio 1, and a drafter of one layer. The engine is
put together by hand, so that blocks of any size, few pages and small steps are possible.

Shapes: R rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from deepinfer_core.cache.recovery import Recovery
from deepinfer_core.cache.replay import DecoderTruncation
from deepinfer_core.engine.admission import Rules
from deepinfer_core.engine.batch import Batch
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.device_pages import DevicePages
from deepinfer_core.engine.drafts.host import VerifyAll
from deepinfer_core.engine.drafts.opening import drafting_with, open_stage
from deepinfer_core.engine.outputs import Completion
from deepinfer_core.engine.pages import PageCounts
from deepinfer_core.engine.prefix_reuse import ReusePolicy
from deepinfer_core.engine.request_options import RequestOptions
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.stored.exchange import Exchange
from deepinfer_core.engine.stored.limits import StoreLimits
from deepinfer_core.interfaces.device import InlineStream
from deepinfer_core.interfaces.draft_planner import AcceptanceRule, DraftPlanner
from deepinfer_core.interfaces.drafter import Drafter, DraftHost
from deepinfer_core.interfaces.sampler import Sampler
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.caches import allocate_caches
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.reference.sampler import build as build_sampler
from deepinfer_core.schedule.plan import SequenceStep
from deepinfer_core.schedule.snapshot import Limits
from deepinfer_core.stores.traffic import BlockTraffic
from deepinfer_core.testing.cache_rows import Kept, kept_rows
from deepinfer_core.testing.tiny import tiny_test_config
from deepinfer_core.testing.watched_runner import WatchedRunner

__all__ = [
    "Answer",
    "Ask",
    "EngineShape",
    "SmallEngine",
    "slim_config",
    "small_engine",
]

_SLIM: dict[str, Any] = {
    "vocab_size": 288,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "q_lora_rank": 32,
    "moe_intermediate_size": 32,
    "n_routed_experts": 4,
    "hc_mult": 2,
    "hc_sinkhorn_iters": 4,
    "compress_ratios": [0, 2, 1, 1, 0],
    "kv_source_layer_ids": [1, 2],
    "index_source_layer_ids": [1, 2, 3],
    "candidate_source_layer_id": 2,
    "engram_layer_ids": [1],
    "engram_num_embeddings": [1618],
    "engram_compressed_vocab_size": 265,
    "num_nextn_predict_layers": 1,
    "dspark_noise_token_id": 287,
    "dspark_target_layer_ids": [2, 3],
}


def slim_config(window_tokens: int, **text_overrides: Any) -> ModelConfig:
    """The smallest config with a layer of each kind.

    Args:
        window_tokens: keys that a row sees in its window.
        text_overrides: values for keys of ``text_config``.
    """
    return tiny_test_config(**{**_SLIM, "sliding_window": window_tokens, **text_overrides})


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineShape:
    """Sizes and modes of a small engine.

    Attributes:
        block_tokens: tokens of a block.
        blocks: usable blocks.
        max_rows: rows of a step.
        max_sequences: sequences that run at once.
        longest: tokens of a prompt and its answer.
        snapshots: slots for copies of states.
        recovery: of cached prefixes without a state.
        shares: whether requests share prefixes.
        truncation: of the decoder half.
        is_asynchronous: a step under way while results are read, on a stream of the device.
        mixes: chunks and decode rows share steps.
        drafts: of a round, if there is a drafter.
        rule: how they are accepted.
    """

    block_tokens: int = 16
    blocks: int = 2048
    max_rows: int = 2048
    max_sequences: int = 16
    longest: int = 1024
    snapshots: int = 64
    recovery: Recovery = "exact"
    shares: bool = True
    truncation: DecoderTruncation | None = None
    is_asynchronous: bool = False
    mixes: bool = True
    drafts: int = 5
    rule: AcceptanceRule = "match"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request.

    Attributes:
        prompt: token ids.
        params: how to draw; ``n`` samples share the work of the first.
        options: how it is treated beside others.
    """

    prompt: Sequence[int]
    params: SamplingParams
    options: RequestOptions = field(default_factory=RequestOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of one sample of a request.

    Attributes:
        done: what a caller sees.
        logits_RV: of the rows that its tokens were drawn from.
        steps: what it fed.
        kept: rows of the caches that it left, by region; nothing of an engine that may be ahead,
            because it is asynchronous or drafts.
    """

    done: Completion
    logits_RV: torch.Tensor
    steps: list[SequenceStep]
    kept: dict[str, Kept]


class SmallEngine(Engine):
    """An engine whose runner is watched."""

    runner: WatchedRunner

    def answer(self, asks: Iterable[Ask]) -> list[Answer]:
        """Run requests together to their ends; the answers stand in the order of the requests.

        Raises:
            AssertionError: a request failed.
            EngineError: the books of blocks and slots were wrong after some step.
        """
        self.runner.forget()
        numbers: list[int] = []
        for index, ask in enumerate(asks):
            first: int | None = None
            for sample in range(ask.params.n):
                number = self.submit(
                    index,
                    ask.prompt,
                    ask.params,
                    sample=sample,
                    options=ask.options,
                    follows=first,
                )
                first = number if first is None else first
                numbers.append(number)
        done: dict[int, Completion] = {}
        kept: dict[int, dict[str, Kept]] = {}
        while len(self.batch):
            for number, delta in self.step():
                if delta.completion is not None:
                    done[number] = delta.completion
                    kept[number] = self._kept(number)
            self.check_integrity()
        logits = self.runner.logits()
        return [self._answer(number, done[number], kept[number], logits) for number in numbers]

    def _kept(self, number: int) -> dict[str, Kept]:
        if self.is_asynchronous or self.batch.drafting is not None:
            return {}
        runner = self.runner
        text = runner.model.config.text_config
        last = runner.steps_of(number)[-1]
        return kept_rows(runner.caches, runner.model.parts.codec, last, text.sliding_window)

    def _answer(
        self,
        number: int,
        done: Completion,
        kept: dict[str, Kept],
        logits: dict[tuple[int, int], torch.Tensor],
    ) -> Answer:
        assert done.error is None, done.error
        first = done.usage.prompt_tokens - 1
        rows = [logits[number, first + place] for place in range(len(done.token_ids))]
        steps = self.runner.steps_of(number)
        return Answer(done=done, logits_RV=torch.stack(rows), steps=steps, kept=kept)


def small_engine(
    model: TextModel,
    shape: EngineShape,
    *,
    sampler: Sampler | None = None,
    drafter: Drafter | None = None,
    planner: DraftPlanner | None = None,
    traffic: BlockTraffic | None = None,
    store_limits: StoreLimits | None = None,
) -> SmallEngine:
    """Build an engine over a model; nothing ends an answer but its length.

    Args:
        model: the network.
        shape: sizes and modes.
        sampler: draws tokens; None: the one of the reference.
        drafter: guesses tokens; None: nobody does.
        planner: how many drafts are verified; None: all.
        traffic: with a store; None: there is none.
        store_limits: what it may take.
    """
    parts, text = model.parts, model.config.text_config
    slots = 1 + shape.max_sequences + shape.snapshots
    caches = allocate_caches(
        model.config,
        parts.numerics,
        parts.codec,
        parts.device,
        num_blocks=shape.blocks + 1,
        num_slots=slots,
        max_backtracking=max(model.config.verified_rows, 1 + shape.drafts if drafter else 1),
        block_tokens=shape.block_tokens,
    )
    has_stream = shape.is_asynchronous or parts.device.torch_device.type != "cpu"
    stream = parts.device.stream() if has_stream else InlineStream()
    limits = Limits(
        max_rows=shape.max_rows,
        max_sequences=shape.max_sequences,
        block_tokens=shape.block_tokens,
        usable_blocks=shape.blocks,
        mixes=shape.mixes,
        rows_each=1 + shape.drafts if drafter else 1,
    )
    stage, drafting = None, None
    if drafter is not None:
        host = DraftHost(
            drafts=shape.drafts,
            vocabulary=text.vocab_size,
            max_sequences=shape.max_sequences,
            max_tokens=shape.longest,
            rule=shape.rule,
            torch_device=parts.device.torch_device,
            temperatures=text.confidence_temperatures,
        )
        draws = sampler or build_sampler(None, BuildContext(device="cpu", needs=ModelNeeds()))
        stage = open_stage(drafter, host, model, caches, draws)
        drafting = drafting_with(stage, planner or VerifyAll())
    policy = ReusePolicy(
        block_tokens=shape.block_tokens,
        window_tokens=text.sliding_window,
        layers=text.num_hidden_layers + 1,
        recovery=shape.recovery,
        is_enabled=shape.shares,
        truncates=shape.truncation is not None,
    )
    exchange = None
    if traffic is not None:
        pages = DevicePages(caches, parts.device, stream)
        exchange = Exchange(traffic, pages, policy, store_limits or StoreLimits())
    counts = PageCounts(blocks=shape.blocks + 1, slots=slots, snapshots=shape.snapshots)
    rules = Rules(
        vocabulary=text.vocab_size,
        max_model_tokens=shape.longest,
        keep_tokens=shape.truncation.keep_tokens if shape.truncation else None,
    )
    return SmallEngine(
        WatchedRunner(model, caches, stream, shape.truncation, sampler, stage),
        Batch(limits, counts, policy, drafting, exchange),
        rules,
        is_asynchronous=shape.is_asynchronous,
    )
