"""Cold equals cached, bit for bit, where somebody else left the prefix behind.

A prompt meets blocks of another prompt with the same beginning, of an answer that is continued, or
of another sample of the same prompt. The oracle is that of ``test_cached_lengths``.
"""

from collections.abc import Callable, Iterator

import pytest
from deepinfer_core.engine.request_options import RequestOptions
from deepinfer_core.engine.sample_seeds import sample_seed
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.testing.beginnings import LONGEST, ask_forced, check_answer, words
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.cold_text import ColdText
from deepinfer_core.testing.small_engines import Ask, EngineShape, SmallEngine, small_engine

ColdTexts = Callable[..., ColdText]


@pytest.fixture(scope="module", params=[16, 128])
def size(request: pytest.FixtureRequest) -> int:
    """Tokens of the window and of a block."""
    return int(request.param)


@pytest.fixture(scope="module")
def cold(cold_texts: ColdTexts, size: int) -> ColdText:
    return cold_texts(size)


@pytest.fixture(scope="module")
def engine(cold: ColdText, size: int) -> Iterator[SmallEngine]:
    shape = EngineShape(block_tokens=size, max_rows=4096, max_sequences=64)
    engine = small_engine(cold.model, shape)
    yield engine
    engine.close()


def around(size: int) -> list[int]:
    """Lengths at every residue of the small block, or at the ends and the middle of the large."""
    return [*range(1, 3 * size + 2)] if size == 16 else [1, 2, 64, 127, 128, 129, 200, 256, 257]


def test_a_beginning_shared_with_another_prompt_is_reused_up_to_its_last_whole_block(
    engine: SmallEngine, cold: ColdText, size: int
) -> None:
    lengths = around(size)
    others = [
        Ask(
            prompt=[*cold.tokens[:shared], *words(f"other {shared}", 20)],
            params=SamplingParams(max_tokens=1),
            options=RequestOptions(cache_salt=f"shared {shared}"),
        )
        for shared in lengths
    ]
    engine.answer(others)
    asks = [ask_forced(cold, shared + size // 2, salt=f"shared {shared}") for shared in lengths]
    for shared, asked, answer in zip(lengths, asks, engine.answer(asks), strict=True):
        assert answer.done.usage.cached_tokens == shared // size * size
        check_answer(cold, asked, answer)


@pytest.mark.parametrize("answered", [1, 2, 15, 16, 17])
def test_an_answer_that_is_continued_is_reused_up_to_its_last_whole_block(
    engine: SmallEngine, cold: ColdText, size: int, answered: int
) -> None:
    lengths = [*range(size, 2 * size + 1)] if size == 16 else [111, 112, 113, 126, 127, 128]
    salts = [f"turns {length} {answered}" for length in lengths]
    engine.answer(
        ask_forced(cold, length, answered, salt=salt)
        for length, salt in zip(lengths, salts, strict=True)
    )
    asks = [
        ask_forced(cold, length + answered + 5, salt=salt)
        for length, salt in zip(lengths, salts, strict=True)
    ]
    for length, asked, answer in zip(lengths, asks, engine.answer(asks), strict=True):
        # The row of an answer's last token is never fed.
        known = length + answered - 1
        assert answer.done.usage.cached_tokens == known // size * size
        assert answer.done.usage.replayed_tokens == 0
        check_answer(cold, asked, answer)


def test_an_asynchronous_engine_leaves_an_answer_that_can_be_continued(
    cold_texts: ColdTexts,
) -> None:
    """It computes a row too many of each sequence, which nobody may find."""
    cold = cold_texts(16)
    engine = small_engine(cold.model, EngineShape(is_asynchronous=True, max_sequences=17))
    lengths = range(16, 33)
    engine.answer(ask_forced(cold, length, 16, salt=str(length)) for length in lengths)
    found = engine.answer(ask_forced(cold, length + 21, salt=str(length)) for length in lengths)
    engine.close()
    for length, answer in zip(lengths, found, strict=True):
        assert answer.done.usage.cached_tokens == (length + 15) // 16 * 16
        assert_same_bits(answer.logits_RV, cold.logits_TV[length + 20 : length + 23])


def fork_lengths(size: int) -> list[int]:
    return (
        [*range(1, LONGEST + 1, 5)] if size == 16 else [1, 2, 3, 128, 129, 130, 255, 256, 257, 640]
    )


def test_samples_share_all_rows_of_their_prompt_but_the_last(
    engine: SmallEngine, cold: ColdText, size: int
) -> None:
    lengths = fork_lengths(size)
    for start in range(0, len(lengths), 10):
        asks = [ask_forced(cold, length, samples=3) for length in lengths[start : start + 10]]
        answers = engine.answer(asks)
        for number, asked in enumerate(asks):
            for answer in answers[3 * number : 3 * number + 3]:
                check_answer(cold, asked, answer)
            for answer in answers[3 * number + 1 : 3 * number + 3]:
                assert answer.done.usage.cached_tokens == len(asked.prompt) - 1
                assert answer.steps[0].token_ids == asked.prompt[-1:]


def test_samples_draw_what_each_draws_alone(engine: SmallEngine, cold: ColdText, size: int) -> None:
    lengths = [1, 2, size - 1, size, size + 1, 2 * size + 5]
    params = SamplingParams(temperature=1, seed=9, n=4, max_tokens=1)
    answers = engine.answer(Ask(prompt=cold.tokens[:length], params=params) for length in lengths)
    found = [answer.done.token_ids[0] for answer in answers]
    assert found == [
        cold.draw(length, temperature=1, seed=sample_seed(9, sample))
        for length in lengths
        for sample in range(4)
    ]
    assert len(set(found[-4:])) > 1
