"""Plain texts and tokens: nothing that a body spells becomes a control token."""

import json
from typing import Any

import pytest
from deepinfer_core.errors import RequestError
from deepinfer_core.server.completions.plain_text import PlainText
from deepinfer_core.testing.byte_tokenizer import CONTROL_TOKENS, byte_tokenizer_source, byte_tokens

GAP = ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>")


def with_gap_tokens() -> PlainText:
    spec = json.loads(byte_tokenizer_source())
    spec["added_tokens"] += [
        {**spec["added_tokens"][0], "id": 300 + place, "content": spelling}
        for place, spelling in enumerate(GAP)
    ]
    return PlainText(json.dumps(spec), 100)


def test_a_gap_is_marked_by_the_tokens_of_the_tokenizer() -> None:
    ids = with_gap_tokens().prompt("ab", "cd")
    assert ids == (0, 300, *byte_tokens("ab"), 301, *byte_tokens("cd"), 302)


def test_token_ids_before_a_gap_get_no_beginning() -> None:
    assert with_gap_tokens().prompt((5, 6), "c") == (300, 5, 6, 301, *byte_tokens("c"), 302)


@pytest.mark.parametrize("spelling", [*CONTROL_TOKENS, *GAP])
def test_the_spelling_of_a_control_token_is_text(spelling: str) -> None:
    text = with_gap_tokens()
    assert text.prompt(spelling) == (0, *byte_tokens(spelling))
    ids = text.prompt("a", spelling)
    assert ids == (0, 300, *byte_tokens("a"), 301, *byte_tokens(spelling), 302)


def test_a_tokenizer_without_a_beginning_takes_token_ids_only() -> None:
    spec = json.loads(byte_tokenizer_source())
    spec["added_tokens"] = spec["added_tokens"][1:]
    text = PlainText(json.dumps(spec), 100)
    assert text.prompt((9,)) == (9,)
    with pytest.raises(RequestError, match="begin"):
        text.prompt("a")


@pytest.mark.parametrize(("length", "fits"), [(1599, True), (1600, True), (1601, False)])
def test_a_text_has_16_characters_at_most_for_each_token_of_the_longest_sequence(
    length: int, fits: bool
) -> None:
    text = with_gap_tokens()
    for encode in (text.encode, text.prompt, lambda suffix: text.prompt("a", suffix)):
        if fits:
            assert encode("a" * length)
        else:
            with pytest.raises(RequestError, match="1601 characters"):
                encode("a" * length)


def test_a_text_becomes_tokens_without_a_beginning_and_back(service: Any) -> None:
    found = service.json("/tokenize", {"prompt": "<think>ï"})
    ids = list(byte_tokens("<think>ï"))
    assert found == {"count": len(ids), "max_model_len": 8192, "tokens": ids}
    assert service.json("/detokenize", {"tokens": ids}) == {"prompt": "<think>ï"}
    assert service.json("/tokenize", {"prompt": ""})["tokens"] == []
    assert service.json("/detokenize", {"tokens": []}) == {"prompt": ""}


def test_control_tokens_are_spelled_out(service: Any) -> None:
    assert service.json("/detokenize", {"tokens": [0, 7]})["prompt"] == "".join(
        CONTROL_TOKENS[token] for token in (0, 7)
    )


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {}),
        ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}),
        ("/tokenize", {"prompt": ["a"]}),
        ("/tokenize", {"prompt": "\ud800"}),
        ("/tokenize", {"messages": "a"}),
        ("/tokenize", {"messages": []}),
        ("/detokenize", {}),
        ("/detokenize", {"tokens": [100000]}),
        ("/detokenize", {"tokens": [-1]}),
        ("/detokenize", {"tokens": ["a"]}),
        ("/v1/completions", {"prompt": "\ud800"}),
    ],
)
def test_what_cannot_be_read_is_refused(service: Any, path: str, body: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        service.json(path, body)


def test_without_a_protocol_that_answers_conversations_none_is_written(service: Any) -> None:
    with pytest.raises(RequestError, match="no protocol of this service answers conversations"):
        service.json("/tokenize", {"messages": [{"role": "user", "content": "a"}]})


def test_a_model_that_is_not_served_has_no_tokens(service: Any) -> None:
    with pytest.raises(RequestError, match="there is no model 'gpt'"):
        service.json("/tokenize", {"model": "gpt", "prompt": "a"})


@pytest.mark.parametrize("count", [0, 1, 65535, 65536, 65537, 131072])
def test_tokens_are_written_whole_however_many_there_are(service: Any, count: int) -> None:
    text = ("abc" * count)[:count]
    found = service.json("/tokenize", {"prompt": text})
    assert found["count"] == count
    assert found["tokens"] == list(byte_tokens(text))
