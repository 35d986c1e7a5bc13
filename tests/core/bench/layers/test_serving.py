"""Does the engine that is looked at have room for its steps, whatever the loads are?"""

from collections.abc import Iterator
from typing import Any

import pytest
from deepinfer_core.bench.layers.loads import Pool
from deepinfer_core.bench.layers.opening import open_runner
from deepinfer_core.bench.layers.scales import SCALES
from deepinfer_core.bench.layers.serving import decoding_engine
from deepinfer_core.config import load_settings, resolve_components
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.model_folder import model_needs
from deepinfer_core.engine.model_loading import model_parts
from deepinfer_core.engine.page_sizes import BLOCK_TOKENS
from deepinfer_core.engine.runner import ModelRunner
from deepinfer_core.plugin import load

STEPS = 4
BLOCKS = 4


@pytest.fixture(scope="module")
def runner() -> Iterator[ModelRunner]:
    config = SCALES["small"]().config
    loaded = load_settings(None, ["device=cpu"], environ={})
    resolved = resolve_components(loaded, model_needs(config, loaded.settings)).require()
    parts = model_parts(resolved, loaded.settings)
    made = open_runner(
        config,
        parts,
        load(resolved, "sampler"),
        num_blocks=1 + BLOCKS,
        num_slots=1 + BLOCKS,
        max_backtracking=1,
    )
    yield made
    made.close()


def opened(runner: ModelRunner, *, blocks: int, **load: Any) -> Engine:
    pool = Pool(
        blocks=blocks,
        block_tokens=BLOCK_TOKENS,
        vocabulary=runner.model.config.text_config.vocab_size,
    )
    return decoding_engine(runner, pool, steps=STEPS, **load)


def longest_after(engine: Engine, sequences: int) -> int:
    """Tokens of the longest text behind the steps, in each of which every request decodes."""
    for _ in range(STEPS):
        assert [len(delta.token_ids) for _, delta in engine.step()] == [1] * sequences
    assert engine.batch.preemptions == 0
    found = max(len(one.tokens) for one in engine.batch)
    engine.reset()
    return found


def test_a_prompt_as_long_as_the_pool_leaves_room_for_the_steps(runner: ModelRunner) -> None:
    engine = opened(runner, blocks=1, sequences=1, rows=BLOCK_TOKENS, longest=BLOCK_TOKENS)
    assert 0.9 * BLOCK_TOKENS < longest_after(engine, 1) <= BLOCK_TOKENS


def test_texts_end_within_their_share_of_the_pool(runner: ModelRunner) -> None:
    engine = opened(runner, blocks=4, sequences=4, rows=4 * BLOCK_TOKENS, longest=1024)
    assert 0.9 * BLOCK_TOKENS < longest_after(engine, 4) <= BLOCK_TOKENS


def test_texts_grow_no_longer_than_recordings_are_for(runner: ModelRunner) -> None:
    engine = opened(runner, blocks=2, sequences=1, rows=256, longest=40)
    assert 30 < longest_after(engine, 1) <= 40


def test_short_prompts_share_the_rows_of_a_step(runner: ModelRunner) -> None:
    engine = opened(runner, blocks=4, sequences=2, rows=20, longest=256)
    assert {len(one.request.prompt_ids) for one in engine.batch} == {10}
    engine.reset()


def test_more_requests_than_rows_have_a_token_each(runner: ModelRunner) -> None:
    engine = opened(runner, blocks=4, sequences=3, rows=2, longest=256)
    assert {len(one.request.prompt_ids) for one in engine.batch} == {1}
    engine.reset()
