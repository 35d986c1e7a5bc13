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
    runner: ModelRunner, pool: Pool, *, sequences: int, rows: int, longest: int, steps: int
) -> Engine:
    """An engine in the middle of decoding.

    Args:
        runner: over caches for so many texts.
        pool: its blocks; each request gets its share of them.
        sequences: requests.
        rows: about so many has the step in which all prompts are fed; each has one at least.
        longest: tokens that a text has at most when the steps are made, if its prompt is longer
            than a token: recordings are of texts up to a length.
        steps: that are still to be made; no request ends before.
    """
    blocks, text = pool.blocks, runner.model.config.text_config
    limits = Limits(
        max_rows=max(rows, sequences),
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
    # A request is drawn from in every step since its prompt was fed.
    most = steps + 1 + sequences + 2 * _LEAD
    room = min(blocks // sequences * pool.block_tokens, longest)
    prompt_tokens = max(min(rows // sequences, room - most), 1)
    params = SamplingParams(temperature=1.0, top_p=0.95, max_tokens=most, ignore_eos=True)
    for number in range(sequences):
        engine.submit(number, pool.tokens(number, prompt_tokens), params)
    drawn: set[int] = set()
    while len(drawn) < sequences:
        drawn |= {number for number, delta in engine.step() if delta.token_ids}
    for _ in range(_LEAD):
        engine.step()
    return engine
