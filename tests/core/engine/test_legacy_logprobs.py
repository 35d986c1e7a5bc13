"""The lists of a text completion: spellings that are told apart, figures that JSON has, offsets."""

import pytest
from deepinfer_core.engine.legacy_logprobs import LogprobLists, token_spelling
from deepinfer_core.engine.outputs import TokenLogprob
from deepinfer_core.engine.tokenizer import Tokenizer, read_tokenizer
from deepinfer_core.testing.byte_tokenizer import CONTROL_TOKENS, byte_tokenizer_source

FIRST_BYTE = len(CONTROL_TOKENS)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return read_tokenizer(byte_tokenizer_source())


def entry(token: int, logprob: float = -1.0) -> TokenLogprob:
    return TokenLogprob(token_id=token, logprob=logprob, processed_logprob=logprob)


def test_no_two_tokens_share_a_spelling(tokenizer: Tokenizer) -> None:
    ids = range(FIRST_BYTE + 257)
    assert len({token_spelling(token, tokenizer) for token in ids}) == len(ids)


def test_offsets_count_characters_that_have_begun(tokenizer: Tokenizer) -> None:
    # Two bytes of "ï", three of "世", a control token that the text does not have, one letter.
    ids = [*(FIRST_BYTE + byte for byte in "ï世".encode()), 0, FIRST_BYTE + ord("a")]
    whole = LogprobLists(tokenizer).take([(token, entry(token)) for token in ids])
    assert whole["text_offset"] == [0, 0, 1, 1, 1, 2, 2]


def test_parts_have_the_offsets_of_the_whole(tokenizer: Tokenizer) -> None:
    pairs = [(FIRST_BYTE + byte, None) for byte in "aïb".encode()]
    whole = LogprobLists(tokenizer).take(pairs)["text_offset"]
    for cut in range(len(pairs) + 1):
        lists = LogprobLists(tokenizer)
        parts = [lists.take(pairs[:cut]), lists.take(pairs[cut:])]
        assert parts[0]["text_offset"] + parts[1]["text_offset"] == whole


def test_an_impossible_token_has_a_figure_that_json_has(tokenizer: Tokenizer) -> None:
    lists = LogprobLists(tokenizer).take([(FIRST_BYTE, entry(FIRST_BYTE, float("-inf")))])
    assert lists["token_logprobs"] == [-9999.0]
    assert lists["top_logprobs"] == [{"\x00": -9999.0}]


def test_the_first_token_of_a_text_has_no_figure() -> None:
    lists = LogprobLists(None).take([(3, None)])
    assert lists["tokens"] == ["token_id:3"]
    assert (lists["token_logprobs"], lists["top_logprobs"]) == ([None], [None])
