"""Does feeding the last window of a cached prefix again leave the cached entries alone?

Blocks of 16 tokens and a window of 16 keys: entries up to position 32 are cached, so rows are fed
from position 16 on.
"""

from typing import Any, Literal

import pytest
import torch
from deepinfer_core.cache.replay import DecoderTruncation
from deepinfer_core.cache.storage import Caches
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.evaluate import fresh_caches, text_step
from deepinfer_core.model.step import StepInputs
from deepinfer_core.testing.steps import feed_prompt, join_steps, replay_step
from deepinfer_core.testing.tiny import golden_tokens

Mode = Literal["mask", "compact"]
Outcome = tuple[torch.Tensor, Caches]

TEXT = golden_tokens(80)
TOKENS = TEXT[:60]
BLOCK, CACHED, START = 16, 32, 16


def keep(tokens: int, mode: Mode = "mask") -> DecoderTruncation:
    return DecoderTruncation(mode=mode, keep_tokens=tokens)


def run(model: TextModel, ends: list[int], truncation: DecoderTruncation | None = None) -> Outcome:
    caches = fresh_caches(model, len(TEXT), block_tokens=BLOCK)
    return feed_prompt(model, TOKENS, ends, caches, truncation=truncation), caches


def with_cached_entries(model: TextModel) -> Caches:
    """Entries of a prefix as an exact run leaves them, and state bytes that are not numbers."""
    caches = fresh_caches(model, len(TEXT), block_tokens=BLOCK)
    model.forward(text_step(TOKENS, 0, CACHED, caches), caches)
    caches.states_PB.fill_(0xFF)
    return caches


def rerun(
    model: TextModel, ends: list[int], truncation: DecoderTruncation | None = None
) -> Outcome:
    """Feed the prompt from one window in front of the end of the cached entries."""
    caches = with_cached_entries(model)
    logits_RV = feed_prompt(
        model, TOKENS, ends, caches, start=START, cached_end=CACHED, truncation=truncation
    )
    return logits_RV, caches


def same_outcome(found: Outcome, expected: Outcome) -> bool:
    return (
        torch.equal(found[0], expected[0])
        and torch.equal(found[1].blocks_PB, expected[1].blocks_PB)
        and torch.equal(found[1].states_PB, expected[1].states_PB)
    )


@pytest.fixture(scope="session")
def exact(model: TextModel) -> Outcome:
    return run(model, [60])


@pytest.fixture(scope="session")
def replayed(model: TextModel) -> Outcome:
    return rerun(model, [60])


@pytest.mark.parametrize("ends", [[60], [16, 60], [7, 16, 17, 60]], ids=str)
def test_a_replay_from_the_first_token_is_exact(
    model: TextModel, exact: Outcome, ends: list[int]
) -> None:
    caches = fresh_caches(model, len(TEXT), block_tokens=BLOCK)
    model.forward(text_step(TOKENS, 0, 16, caches), caches)
    caches.states_PB[1].fill_(0xFF)
    logits_RV = feed_prompt(model, TOKENS, ends, caches, cached_end=16)
    assert torch.equal(logits_RV, exact[0][16:])
    assert torch.equal(caches.blocks_PB, exact[1].blocks_PB)
    for layer in range(model.config.boundary_layer + 3):
        ring, expected = caches.window(layer).data_PB, exact[1].window(layer).data_PB
        assert torch.equal(ring[1], expected[1])


@pytest.mark.parametrize("ends", [[60], [32, 60], [33, 60], [17, 18, 24, 60]], ids=str)
def test_replay_in_chunks_of_every_size_gives_the_bits_of_one_step(
    model: TextModel, exact: Outcome, replayed: Outcome, ends: list[int]
) -> None:
    assert same_outcome(rerun(model, ends), replayed)
    assert not torch.equal(replayed[0][0], exact[0][CACHED])


def test_replayed_rows_do_not_touch_the_cached_blocks(
    model: TextModel, exact: Outcome, replayed: Outcome
) -> None:
    cached = slice(1, 1 + CACHED // BLOCK)
    assert torch.equal(replayed[1].blocks_PB[cached], exact[1].blocks_PB[cached])
    # The entry behind them is new, and is written.
    assert bool(replayed[1].blocks_PB[cached.stop].any())


def test_replayed_rows_write_nothing_even_where_nothing_is(model: TextModel) -> None:
    caches = fresh_caches(model, len(TEXT), block_tokens=BLOCK)
    feed_prompt(model, TOKENS, [CACHED], caches, start=START, cached_end=CACHED)
    assert not bool(caches.blocks_PB.any())
    assert bool(caches.states_PB[1].any())


@pytest.mark.parametrize("tokens", [22, 40])
@pytest.mark.parametrize("ends", [[60], [25, 60], [17, 29, 35, 60]], ids=str)
def test_both_replays_together_agree_in_both_modes(
    model: TextModel, tokens: int, ends: list[int]
) -> None:
    # With 40 kept tokens the decoder half begins at 20, among the replayed rows.
    expected = rerun(model, [60], keep(tokens))
    assert same_outcome(rerun(model, ends, keep(tokens, "compact")), expected)
    assert same_outcome(rerun(model, ends, keep(tokens)), expected)


@pytest.mark.parametrize("tokens", [44, 45, 60])
def test_keeping_tokens_in_front_of_the_replayed_rows_brings_no_keys_back(
    model: TextModel, replayed: Outcome, tokens: int
) -> None:
    assert same_outcome(rerun(model, [60], keep(tokens, "compact")), replayed)


def test_an_engram_behind_the_start_of_a_replay_looks_at_the_tokens_before_it(
    model: TextModel,
) -> None:
    exact_values: dict[str, torch.Tensor] = {}
    values: dict[str, torch.Tensor] = {}
    caches = fresh_caches(model, 60)
    model.forward(text_step(TOKENS, 0, 60, caches), caches, probe=exact_values.__setitem__)
    feed_prompt(
        model,
        TOKENS,
        [60],
        with_cached_entries(model),
        start=START,
        cached_end=CACHED,
        probe=values.__setitem__,
    )
    for layer in (0, 2):
        name = f"layers.{layer}.engram.rows"
        assert torch.equal(values[name], exact_values[name][START:])


@pytest.mark.parametrize("mode", ["mask", "compact"])
def test_sequences_of_every_kind_in_one_step_keep_their_bits(
    model: TextModel, exact: Outcome, mode: Mode
) -> None:
    short, blocks = keep(22, mode), [range(1 + 5 * n, 6 + 5 * n) for n in range(4)]
    alone = [
        run(model, [60], keep(22))[0],  # truncated, in two steps
        exact[0][:30],  # untouched
        rerun(model, [60], keep(22))[0],  # truncated and replayed
        exact[0][:51],  # decoding in the second step
    ]
    caches = fresh_caches(model, 5 * len(TEXT), block_tokens=BLOCK)
    wide = type(caches)(caches.layout, model.parts.device, num_blocks=21, num_slots=5)
    model.forward(text_step(TOKENS, 0, 32, wide, block_ids=blocks[2], state_slot=3), wide)

    def part(number: int, start: int, stop: int, **replaying: Any) -> StepInputs:
        return replay_step(
            TOKENS,
            start,
            stop,
            wide,
            block_ids=blocks[number],
            state_slot=number + 1,
            **replaying,
        )

    steps = [
        [
            part(0, 0, 41, truncation=short),
            part(3, 0, 50),
            part(2, 16, 25, truncation=short, valid_start=16, cached_end=32),
        ],
        [
            part(2, 25, 60, truncation=short, valid_start=16, cached_end=32),
            part(3, 50, 51),
            part(0, 41, 60, truncation=short),
            part(1, 0, 30),
        ],
    ]
    first, second = (model.forward(join_steps(step), wide) for step in steps)
    assert torch.equal(torch.cat((first[:3], second[23:42])), alone[0])
    assert torch.equal(second[42:], alone[1])
    assert torch.equal(second[:22], alone[2])
    assert torch.equal(torch.cat((first[3:], second[22:23])), alone[3])
