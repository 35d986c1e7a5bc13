"""Which rows does the decoder half skip, and which does it keep?"""

from typing import Any

import pytest
from deepinfer_core.cache.replay import DecoderTruncation, removed_rows
from deepinfer_core.errors import ConfigError


def test_a_prompt_of_three_chunks_keeps_its_tail_and_one_row_of_each_earlier_chunk() -> None:
    keep_from = DecoderTruncation(mode="compact", keep_tokens=140).keep_from(1000)
    chunks = ((0, 400), (400, 400), (800, 200))
    removed = [removed_rows(start, rows, keep_from) for start, rows in chunks]
    assert removed == [399, 399, 60]
    assert [rows - gone for (_, rows), gone in zip(chunks, removed, strict=True)] == [1, 1, 140]


@pytest.mark.parametrize(
    ("start", "rows", "removed"),
    [
        (0, 1, 0),
        (0, 49, 48),
        (0, 50, 49),
        (0, 51, 50),
        (0, 52, 50),
        (49, 1, 0),
        (49, 2, 1),
        (50, 1, 0),
        (50, 9, 0),
        (51, 9, 0),
        (90, 9, 0),
    ],
)
def test_rows_in_front_of_position_50_go_but_for_the_last_of_a_chunk(
    start: int, rows: int, removed: int
) -> None:
    assert removed_rows(start, rows, 50) == removed


@pytest.mark.parametrize(
    ("prompt", "keep_from"), [(0, 0), (1, 0), (139, 0), (140, 0), (141, 1), (280, 140)]
)
def test_the_last_tokens_of_a_prompt_are_kept(prompt: int, keep_from: int) -> None:
    assert DecoderTruncation(mode="mask", keep_tokens=140).keep_from(prompt) == keep_from


@pytest.mark.parametrize("keep", [134, 135, 1 << 20])
def test_keeping_a_window_and_what_may_be_taken_back_is_enough(keep: int) -> None:
    truncation = DecoderTruncation(mode="mask", keep_tokens=keep)
    truncation.check(window_tokens=128, max_backtracking=6)


@pytest.mark.parametrize("keep", [-1, 0, 128, 133])
def test_keeping_less_is_refused(keep: int) -> None:
    truncation = DecoderTruncation(mode="compact", keep_tokens=keep)
    with pytest.raises(ConfigError, match=f"keep {keep} tokens.*keep at least 134 tokens"):
        truncation.check(window_tokens=128, max_backtracking=6)


def test_an_unknown_mode_is_refused() -> None:
    mode: Any = "off"
    truncation = DecoderTruncation(mode=mode, keep_tokens=200)
    with pytest.raises(ConfigError, match='truncation mode "off"'):
        truncation.check(window_tokens=128, max_backtracking=6)
