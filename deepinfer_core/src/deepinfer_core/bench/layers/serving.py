"""How does a whole engine decode on the layers, so that the gaps between its steps can be seen?

The engine that serves, over the runner that was measured: it decides, launches, reads tokens and
tells its callers. Requests begin with short prompts, so that steps are short: a gap weighs most
there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepinfer_core.bench.layers.loads import Pool
from deepinfer_core.engine.admission import Rules
from deepinfer_core.engine.batch import Batch
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.pages import PageCounts
from deepinfer_core.engine.prefix_reuse import ReusePolicy
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.schedule.snapshot import Limits

if TYPE_CHECKING:
    from deepinfer_core.engine.runner import ModelRunner

__all__ = ["decoding_engine"]

_LEAD = 3
"""Steps in which all requests decode, before the first that is looked at."""


def decoding_engine(
    runner: ModelRunner, pool: Pool, *, sequences: int, prompt_tokens: int, steps: int, chunk: int
) -> Engine:
    """An engine in the middle of decoding.

    Args:
        runner: over caches for so many texts.
        pool: its blocks.
        sequences: requests.
        prompt_tokens: of each.
        steps: that are still to be made; no request ends before.
        chunk: most rows of a step.
    """
    blocks, text = pool.blocks, runner.model.config.text_config
    limits = Limits(
        max_rows=chunk,
        max_sequences=sequences,
        block_tokens=pool.block_tokens,
        usable_blocks=blocks,
        mixes=False,
    )
    policy = ReusePolicy(
        block_tokens=pool.block_tokens,
        window_tokens=text.sliding_window,
        layers=text.num_hidden_layers + 1,
        recovery="exact",
        is_enabled=False,
        truncates=False,
    )
    slots = runner.caches.states_PB.shape[0]
    batch = Batch(limits, PageCounts(blocks=blocks + 1, slots=slots, snapshots=0), policy)
    rules = Rules(
        vocabulary=text.vocab_size, max_model_tokens=blocks * pool.block_tokens, has_text=False
    )
    engine = Engine(runner, batch, rules)
    chunks = -(-sequences * prompt_tokens // chunk)
    # A request is drawn from in every step since its prompt was fed.
    most = steps + chunks + sequences + 2 * _LEAD
    params = SamplingParams(temperature=1.0, top_p=0.95, max_tokens=most, ignore_eos=True)
    for number in range(sequences):
        engine.submit(number, pool.tokens(number, prompt_tokens), params)
    drawn: set[int] = set()
    while len(drawn) < sequences:
        drawn |= {number for number, delta in engine.step() if delta.token_ids}
    for _ in range(_LEAD):
        engine.step()
    return engine
