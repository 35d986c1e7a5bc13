"""Does every token of a prompt count once, for its class and its source?"""

import pytest
from deepinfer_core.engine.outputs import Usage
from deepinfer_core.engine.prompt_sources import PromptSources, source_labels
from deepinfer_core.telemetry.board import Board
from deepinfer_core.telemetry.metric_list import PROMPT_SOURCES, STATE_PLACES

CLASSES = ("agent", "batch")


@pytest.fixture
def board() -> Board:
    return Board({}, labelled={"prompt_source_tokens_total": source_labels(CLASSES)})


def tokens(board: Board, retention: str = "agent") -> dict[str, float]:
    shown = {
        one: board.number("prompt_source_tokens_total", retention, one).value
        for one in PROMPT_SOURCES
    }
    return {one: value for one, value in shown.items() if value}


def states(board: Board) -> dict[str, float]:
    shown = {one: board.number("prompt_states_total", one).value for one in STATE_PLACES}
    return {one: value for one, value in shown.items() if value}


@pytest.mark.parametrize(
    ("cached", "replayed", "stored", "peer", "expected"),
    [
        (0, 0, 0, 0, {"computed": 100}),
        (64, 0, 0, 0, {"computed": 36, "host": 64}),
        (64, 0, 48, 0, {"computed": 36, "host": 16, "store": 48}),
        (64, 0, 48, 32, {"computed": 36, "host": 16, "store": 16, "peer": 32}),
        (64, 16, 48, 0, {"computed": 36, "host": 16, "store": 32, "replayed": 16}),
        (64, 64, 48, 0, {"computed": 36, "replayed": 64}),
        (64, 56, 48, 48, {"computed": 36, "host": 8, "replayed": 56}),
        (64, 16, 0, 0, {"computed": 36, "host": 48, "replayed": 16}),
    ],
)
def test_each_token_has_one_source(
    board: Board, cached: int, replayed: int, stored: int, peer: int, expected: dict[str, int]
) -> None:
    usage = Usage(
        prompt_tokens=100,
        cached_tokens=cached,
        replayed_tokens=replayed,
        stored_tokens=stored,
        peer_tokens=peer,
    )
    PromptSources(board, CLASSES).count(usage, "agent")
    assert tokens(board) == expected
    assert sum(expected.values()) == 100


def test_classes_are_told_apart(board: Board) -> None:
    sources = PromptSources(board, CLASSES)
    sources.count(Usage(prompt_tokens=10, cached_tokens=4), "batch")
    sources.count(Usage(prompt_tokens=7), "agent")
    assert tokens(board, "batch") == {"computed": 6, "host": 4}
    assert tokens(board, "agent") == {"computed": 7}


def test_a_prefix_that_was_found_has_its_state_somewhere_or_nowhere(board: Board) -> None:
    sources = PromptSources(board, CLASSES)
    sources.count(Usage(prompt_tokens=10), "agent")
    assert states(board) == {}
    sources.count(Usage(prompt_tokens=10, cached_tokens=4), "agent")
    sources.count(Usage(prompt_tokens=10, cached_tokens=4, replayed_tokens=4), "agent")
    sources.count(Usage(prompt_tokens=10, cached_tokens=4, has_peer_state=True), "agent")
    assert states(board) == {"local": 1, "missed": 1, "peer": 1}
