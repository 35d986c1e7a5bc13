"""The tokenizer wrapper: ordinary text in, bytes out."""

import json
import threading
from pathlib import Path

import pytest
from deepinfer_core.engine.byte_letters import BYTE_LETTERS
from deepinfer_core.engine.tokenizer import Tokenizer, open_tokenizer
from deepinfer_core.errors import RequestError, WeightsError
from deepinfer_core.testing.byte_tokenizer import CONTROL_TOKENS, byte_tokenizer_source


def test_text_comes_back_from_its_tokens(tokenizer: Tokenizer) -> None:
    text = "Héllo 世界\n\t\0 end"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_spelling_of_a_control_token_is_ordinary_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a<｜User｜></think>")
    assert all(token >= len(CONTROL_TOKENS) for token in ids)
    assert tokenizer.decode(ids) == "a<｜User｜></think>"


def test_control_tokens_are_left_out_of_the_text_unless_asked_for(tokenizer: Tokenizer) -> None:
    ids = [3, *tokenizer.encode("a")]
    assert tokenizer.decode(ids) == "a"
    assert tokenizer.decode(ids, skip_control=False) == "<｜User｜>a"


def test_a_control_token_is_found_by_its_spelling(tokenizer: Tokenizer) -> None:
    assert tokenizer.control_id("<｜User｜>") == 3
    assert tokenizer.control_id("<nothing>") is None


def test_an_id_without_a_token_has_no_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.piece(100_000, skip_control=True) == b""


def test_every_byte_has_one_letter() -> None:
    assert sorted(BYTE_LETTERS.values()) == list(range(256))
    assert BYTE_LETTERS["A"] == 0x41
    assert BYTE_LETTERS["Ġ"] == 0x20  # the space of every byte-level vocabulary
    assert BYTE_LETTERS["Ċ"] == 0x0A  # and its line feed


def test_a_folder_without_a_tokenizer_gives_none(tmp_path: Path) -> None:
    assert open_tokenizer(tmp_path) is None


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b"\xff\xfe", b'{"decoder": {"type": "WordPiece"}}']
)
def test_a_damaged_tokenizer_is_a_weights_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(WeightsError, match=r"tokenizer\.json"):
        open_tokenizer(tmp_path)


def test_a_tokenizer_whose_model_is_broken_is_a_weights_error(tmp_path: Path) -> None:
    spec = json.loads(byte_tokenizer_source())
    spec["model"]["merges"] = ["zz"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    with pytest.raises(WeightsError, match=r"tokenizer\.json is not a tokenizer"):
        open_tokenizer(tmp_path)


def test_other_threads_run_while_a_long_text_is_encoded(tokenizer: Tokenizer) -> None:
    """A server's event loop is one of them; were the lock kept, none would get a turn."""
    turns, is_over = [0], threading.Event()

    def take_turns() -> None:
        while not is_over.wait(0.001):
            turns[0] += 1

    thread = threading.Thread(target=take_turns)
    thread.start()
    try:
        before = turns[0]
        assert tokenizer.encode("a word, " * 100_000)
        during = turns[0] - before
    finally:
        is_over.set()
        thread.join()
    # One turn may lie before the text and one behind it.
    assert during > 5


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_half_of_a_surrogate_pair_is_no_text(tokenizer: Tokenizer, text: str) -> None:
    with pytest.raises(RequestError, match="no characters"):
        tokenizer.encode(text)
