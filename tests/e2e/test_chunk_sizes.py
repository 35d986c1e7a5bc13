"""A prompt gives the same bits in chunks of every size, alone or beside rows that decode.

The oracle is a feeding of the whole text without engine (``testing.cold_text``).
"""

from collections.abc import Callable

import pytest
from deepinfer_core.testing.beginnings import ask_forced, check_answer
from deepinfer_core.testing.cold_text import ColdText
from deepinfer_core.testing.small_engines import Answer, EngineShape, SmallEngine, small_engine

ColdTexts = Callable[..., ColdText]

TAIL = 25
"""Tokens of a prompt beyond its first chunk: with a window of 16 more than a ring of 22 holds."""


@pytest.fixture(scope="module")
def cold(cold_texts: ColdTexts) -> ColdText:
    return cold_texts(16)


def chunks(answer: Answer) -> list[int]:
    """Rows of each step that fed more than one."""
    return [len(step.token_ids) for step in answer.steps if len(step.token_ids) > 1]


def engine_of(cold: ColdText, rows: int, **modes: bool) -> SmallEngine:
    shape = EngineShape(
        max_rows=rows, max_sequences=min(rows, 2), blocks=64, snapshots=0, shares=False, **modes
    )
    return small_engine(cold.model, shape)


@pytest.mark.parametrize("first", range(1, 131, 26))
def test_a_prompt_alone_gives_the_same_bits_in_chunks_of_every_size(
    cold: ColdText, first: int
) -> None:
    for size in range(first, first + 26):
        engine = engine_of(cold, size)
        asked = ask_forced(cold, size + TAIL)
        [answer] = engine.answer([asked])
        assert len(answer.steps[0].token_ids) == size
        check_answer(cold, asked, answer)


def beside_a_decoding_row(cold: ColdText, rows: int, *, mixes: bool) -> tuple[Answer, Answer]:
    """A long answer to one token, and a prompt that is cut while it is drawn."""
    engine = engine_of(cold, rows, mixes=mixes)
    asks = [ask_forced(cold, 1, 4), ask_forced(cold, rows + TAIL, 2)]
    answers = engine.answer(asks)
    for asked, answer in zip(asks, answers, strict=True):
        check_answer(cold, asked, answer)
    return answers[0], answers[1]


@pytest.mark.parametrize("first", range(2, 132, 26))
def test_a_prompt_gives_the_same_bits_beside_a_decoding_row_in_steps_of_every_size(
    cold: ColdText, first: int
) -> None:
    for rows in range(first, first + 26):
        _, answer = beside_a_decoding_row(cold, rows, mixes=True)
        # In every step one row is the other's.
        assert len(answer.steps[0].token_ids) == rows - 1


@pytest.mark.parametrize("rows", [2, 3, 6, 7, 8, 15, 16, 17, 21, 22, 23, 64, 127, 128, 129, 130])
def test_a_prompt_gives_the_same_bits_in_turns_with_decoding_rows(
    cold: ColdText, rows: int
) -> None:
    _, answer = beside_a_decoding_row(cold, rows, mixes=False)
    # Both start in one step; the next one of this kind is the prompt's alone.
    assert [len(step.token_ids) for step in answer.steps[:2]] == [rows - 1, min(rows, TAIL + 1)]


# A window and a block of 128, a ring of 134; up to 6 rows are read from the ring.
@pytest.mark.parametrize("rows", [6, 7, 63, 126, 127, 128, 129, 130])
def test_chunks_around_a_window_of_the_full_model_s_length_give_the_same_bits(
    cold_texts: ColdTexts, rows: int
) -> None:
    cold = cold_texts(128)
    shape = EngineShape(block_tokens=128, max_rows=rows, max_sequences=2, shares=False)
    asked = ask_forced(cold, 270)
    [answer] = small_engine(cold.model, shape).answer([asked])
    assert max(chunks(answer)) == rows
    check_answer(cold, asked, answer)
