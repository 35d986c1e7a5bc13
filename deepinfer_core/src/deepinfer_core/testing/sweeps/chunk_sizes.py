"""Does a prompt give the same bits in chunks of every size, alone or beside rows that decode?

The oracle is a feeding of the whole text without engine (``testing.cold_text``).
"""

from __future__ import annotations

from typing import Any

import pytest

from deepinfer_core.testing.beginnings import ask_forced, check_answer
from deepinfer_core.testing.cold_text import ColdText
from deepinfer_core.testing.small_engines import Answer, EngineShape, SmallEngine
from deepinfer_core.testing.sweeps.fixtures import ColdTexts, MakeEngine
from deepinfer_core.testing.sweeps.sweep import Sweep

__all__ = ["ChunkSizesSweep"]

_TAIL = 25
"""Tokens of a prompt beyond its first chunk: with a window of 16 more than a ring of 22 holds."""


class ChunkSizesSweep(Sweep):
    """Chunks of 1 to 130 rows; a window of 16, and one of 128 around its length."""

    @pytest.fixture
    def cold(self, cold_texts: ColdTexts) -> ColdText:
        """The text in windows of 16."""
        return cold_texts(16)

    @pytest.mark.parametrize("first", range(1, 131, 26))
    def test_a_prompt_alone_gives_the_same_bits_in_chunks_of_every_size(
        self, cold: ColdText, make_engine: MakeEngine, first: int
    ) -> None:
        """The prompt's first step has as many rows as there may be, the others the rest."""
        for size in range(first, first + 26):
            engine = _engine_of(make_engine, cold, size)
            asked = ask_forced(cold, size + _TAIL)
            [answer] = engine.answer([asked])
            assert len(answer.steps[0].token_ids) == size
            check_answer(cold, asked, answer)

    @pytest.mark.parametrize("first", range(2, 132, 26))
    def test_a_prompt_gives_the_same_bits_beside_a_decoding_row_in_steps_of_every_size(
        self, cold: ColdText, make_engine: MakeEngine, first: int
    ) -> None:
        """In every step one row is the other's."""
        for rows in range(first, first + 26):
            _, answer = _beside_a_decoding_row(make_engine, cold, rows, mixes=True)
            assert len(answer.steps[0].token_ids) == rows - 1

    @pytest.mark.parametrize(
        "rows", [2, 3, 6, 7, 8, 15, 16, 17, 21, 22, 23, 64, 127, 128, 129, 130]
    )
    def test_a_prompt_gives_the_same_bits_in_turns_with_decoding_rows(
        self, cold: ColdText, make_engine: MakeEngine, rows: int
    ) -> None:
        """Both start in one step; the next one of this kind is the prompt's alone."""
        _, answer = _beside_a_decoding_row(make_engine, cold, rows, mixes=False)
        assert [len(step.token_ids) for step in answer.steps[:2]] == [
            rows - 1,
            min(rows, _TAIL + 1),
        ]

    @pytest.mark.parametrize("rows", [6, 7, 63, 126, 127, 128, 129, 130])
    def test_chunks_around_a_window_of_the_full_model_s_length_give_the_same_bits(
        self, cold_texts: ColdTexts, make_engine: MakeEngine, rows: int
    ) -> None:
        """A window and a block of 128, a ring of 134; up to 6 rows are read from the ring."""
        cold = cold_texts(128)
        shape = EngineShape(block_tokens=128, max_rows=rows, max_sequences=2, shares=False)
        asked = ask_forced(cold, 270)
        [answer] = make_engine(cold.model, shape).answer([asked])
        assert max(len(step.token_ids) for step in answer.steps) == rows
        check_answer(cold, asked, answer)


def _engine_of(make_engine: MakeEngine, cold: ColdText, rows: int, **modes: Any) -> SmallEngine:
    shape = EngineShape(
        max_rows=rows, max_sequences=min(rows, 2), blocks=64, snapshots=0, shares=False, **modes
    )
    return make_engine(cold.model, shape)


def _beside_a_decoding_row(
    make_engine: MakeEngine, cold: ColdText, rows: int, *, mixes: bool
) -> tuple[Answer, Answer]:
    """A long answer to one token, and a prompt that is cut while it is drawn."""
    engine = _engine_of(make_engine, cold, rows, mixes=mixes)
    asks = [ask_forced(cold, 1, 4), ask_forced(cold, rows + _TAIL, 2)]
    answers = engine.answer(asks)
    for asked, answer in zip(asks, answers, strict=True):
        check_answer(cold, asked, answer)
    return answers[0], answers[1]
