"""What is exact when the decoder half skips rows, or a prefix is replayed?

Truncation approximates, but it approximates the same thing every time: masked or compacted, cached
or cold. What is approximate never reaches a request that is promised exact results.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import pytest
from deepinfer_core.cache.recovery import resume_point
from deepinfer_core.cache.replay import DecoderTruncation
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.model.evaluate import fresh_caches, text_step
from deepinfer_core.testing.beginnings import LONGEST, ask, ask_forced, check_answer, check_resumed
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.cached_prefix import CachedPrefix
from deepinfer_core.testing.cold_text import ColdText
from deepinfer_core.testing.small_engines import (
    Answer,
    Ask,
    EngineShape,
    SmallEngine,
    small_engine,
)
from deepinfer_core.testing.steps import replay_step

ColdTexts = Callable[..., ColdText]
Mode = Literal["mask", "compact"]

KEEP = 22
"""The least that may be kept: a window of 16, and 6 rows that a step may take back."""


@pytest.fixture(scope="module")
def cold(cold_texts: ColdTexts) -> ColdText:
    return cold_texts(16)


def engine_of(cold: ColdText, mode: Mode, keep: int = KEEP, **sizes: int) -> SmallEngine:
    truncation = DecoderTruncation(mode=mode, keep_tokens=keep)
    return small_engine(cold.model, EngineShape(truncation=truncation, **sizes))


def answers_to(engine: SmallEngine, asks: list[Ask]) -> list[Answer]:
    """In groups that share their steps."""
    return [one for at in range(0, len(asks), 16) for one in engine.answer(asks[at : at + 16])]


def assert_same(found: list[Answer], wanted: list[Answer]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.done.token_ids == other.done.token_ids
        assert_same_bits(one.logits_RV, other.logits_RV)


# Prompts that are kept whole, the first that are not, and more than two blocks of them.
LENGTHS = [*range(1, 24), *range(37, 40), *range(53, 72)]


@pytest.fixture(scope="module")
def masked(cold: ColdText) -> list[Answer]:
    """What a cold engine that masks answers."""
    engine = engine_of(cold, "mask", shares=False)
    return answers_to(engine, [ask_forced(cold, length) for length in LENGTHS])


@pytest.mark.parametrize("rows", [7, 16, 33, 512])
def test_compacting_gives_the_bits_of_masking_in_chunks_of_any_size(
    cold: ColdText, masked: list[Answer], rows: int
) -> None:
    sequences = min(rows, 16)
    engine = engine_of(cold, "compact", shares=False, max_rows=rows, max_sequences=sequences)
    # Short steps take long: they get fewer lengths.
    every = 1 if rows > 15 else 3
    found = answers_to(engine, [ask_forced(cold, length) for length in LENGTHS[::every]])
    assert_same(found, masked[::every])


def test_truncation_is_an_approximation(cold: ColdText, masked: list[Answer]) -> None:
    """Otherwise the others of this file would compare exact with exact."""
    length, answer = LENGTHS[-1], masked[-1]
    assert not answer.logits_RV.equal(cold.logits_TV[length - 1 : length + 2])


@pytest.mark.parametrize("mode", ["mask", "compact"])
@pytest.mark.parametrize("keep", [22, 64])
def test_a_prompt_that_is_kept_whole_gets_exact_bits(cold: ColdText, mode: Mode, keep: int) -> None:
    engine = engine_of(cold, mode, keep, max_rows=40)
    for length in (1, 2, 15, 16, 17, keep - 1, keep):
        asked = ask(cold, length)
        [answer] = engine.answer([asked])
        check_answer(cold, asked, answer)


@pytest.mark.parametrize("mode", ["mask", "compact"])
@pytest.mark.parametrize("has_states", [True, False], ids=["with states", "without states"])
def test_cached_equals_cold_under_truncation(
    cold: ColdText, masked: list[Answer], mode: Mode, has_states: bool
) -> None:
    engine = engine_of(cold, mode)
    for end in range(16, 81, 16):
        # Twenty-two more tokens, so that the boundary is the last that this prompt may reuse.
        engine.answer([ask_forced(cold, end + KEEP, 1)])
    prefix = CachedPrefix(engine.batch, cold.tokens[:80])
    for at in range(0, len(LENGTHS), 16):
        if not has_states:
            prefix.drop_snapshots()
        lengths = LENGTHS[at : at + 16]
        answers = engine.answer(ask_forced(cold, length) for length in lengths)
        assert_same(answers, masked[at : at + 16])
        for length, answer in zip(lengths, answers, strict=True):
            resume = resume_point(
                cached_blocks=5,
                snapshots=[*range(16, 81, 16)] if has_states else [],
                limit_tokens=length - KEEP,
                recovery="exact",
                block_tokens=16,
                window_tokens=16,
                layers=5,
            )
            check_resumed(answer, resume)


@pytest.mark.parametrize("mode", ["mask", "compact"])
def test_blocks_and_states_of_a_truncated_answer_serve_longer_prompts(
    cold: ColdText, masked: list[Answer], mode: Mode
) -> None:
    """An answer leaves blocks and snapshots whose decoder half nobody may read."""
    engine = engine_of(cold, mode, max_sequences=19)
    lengths = LENGTHS[-19:]
    engine.answer(ask_forced(cold, 9, length - 9, salt=str(length)) for length in lengths)
    found = engine.answer(ask_forced(cold, length, salt=str(length)) for length in lengths)
    cached = [answer.done.usage.cached_tokens for answer in found]
    assert cached == [(length - KEEP) // 16 * 16 for length in lengths]
    assert_same(found, masked[-19:])


def recover(engine: SmallEngine, recovery: Literal["exact", "bounded"]) -> None:
    pages = engine.batch.pages
    pages.policy = replace(pages.policy, recovery=recovery)


def test_what_a_bounded_recovery_computes_never_reaches_an_exact_request(cold: ColdText) -> None:
    engine = small_engine(cold.model, EngineShape())
    prefix = CachedPrefix(engine.batch, cold.tokens[:LONGEST])
    exact = cold.logits_TV
    differed = 0
    for end in (96, 160, 240, 320):
        # Exact blocks up to the end, without any state; then an approximate run far beyond it.
        recover(engine, "exact")
        engine.answer([ask_forced(cold, end, 1)])
        prefix.drop_snapshots()
        recover(engine, "bounded")
        [bounded] = engine.answer([ask_forced(cold, end + 10, 30)])
        assert bounded.done.usage.cached_tokens == end
        assert bounded.done.usage.replayed_tokens == 16
        differed += not bounded.logits_RV.equal(exact[end + 9 : end + 39])
        # Nothing of it was stored: neither blocks nor states.
        assert len(prefix.found().block_ids) == end // 16
        assert not prefix.found().snapshots
        recover(engine, "exact")
        # The second passes a boundary that the approximate answer reached while it was drawn; the
        # third resumes there.
        for length in (end + 1, end + 17, end + 20, end + 60):
            asked = ask_forced(cold, length)
            [answer] = engine.answer([asked])
            check_answer(cold, asked, answer)
    assert differed, "the recovery was exact by chance"


@pytest.mark.parametrize("length", [97, 111, 130])
def test_a_bounded_recovery_sees_nothing_before_the_window_that_it_feeds_again(
    cold: ColdText, length: int
) -> None:
    model, end = cold.model, 96
    caches = fresh_caches(model, 160, block_tokens=16)
    model.forward(text_step(cold.tokens, 0, end, caches), caches)
    again = replay_step(cold.tokens, end - 16, length, caches, valid_start=end - 16, cached_end=end)
    wanted_RV = model.forward(again, caches)[-1:]
    engine = small_engine(model, EngineShape(recovery="bounded", blocks=24, max_sequences=2))
    engine.answer([ask_forced(cold, end, 1)])
    CachedPrefix(engine.batch, cold.tokens[:end]).drop_snapshots()
    # What slots held before must not matter: these keys would be seen if they could be.
    engine.runner.caches.states_PB.fill_(0x2B)
    [found] = engine.answer([ask_forced(cold, length, 1)])
    assert found.done.usage.replayed_tokens == 16
    assert_same_bits(found.logits_RV, wanted_RV)


def test_a_bounded_recovery_with_a_state_nearby_is_exact(cold: ColdText) -> None:
    engine = small_engine(cold.model, EngineShape(recovery="bounded"))
    engine.answer([Ask(prompt=cold.tokens[:200], params=SamplingParams(max_tokens=1))])
    for length in (193, 200, 205, 209, 230):
        asked = ask(cold, length)
        [answer] = engine.answer([asked])
        assert answer.done.usage.cached_tokens >= 192
        check_answer(cold, asked, answer)
