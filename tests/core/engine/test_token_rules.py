"""What a request asks of its tokens, worked out once."""

from typing import Any

import pytest
from deepinfer_core.engine.admission import Rules, admit
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.sequence import TokenRules
from deepinfer_core.engine.token_rules import token_rules
from deepinfer_core.engine.tokenizer import Tokenizer

EOS = 1
CONTROL = 6


def found(tokenizer: Tokenizer | None = None, **fields: Any) -> TokenRules:
    rules = Rules(
        vocabulary=265, max_model_tokens=64, eos_ids=frozenset({EOS}), banned_ids=(9, 5, 9)
    )
    params = SamplingParams(**fields)
    return token_rules(admit(rules, 0, [10], params, 0.0, lambda: 0), rules, tokenizer)


def test_the_end_of_the_sequence_and_stop_tokens_end_a_request() -> None:
    assert found(stop_token_ids=[7]).end_ids == {EOS, 7}
    assert found(stop_token_ids=[7], ignore_eos=True).end_ids == {7}
    assert found(stop_token_ids=[EOS], ignore_eos=True).end_ids == {EOS}


def test_only_stop_tokens_that_were_asked_for_are_shown() -> None:
    assert found(stop_token_ids=[7]).shown_end_ids == set()
    assert found(stop_token_ids=[7], include_stop_str_in_output=True).shown_end_ids == {7}


def test_tokens_that_are_never_drawn_are_listed_once_in_order() -> None:
    assert found().banned == (5, 9)


def test_a_token_that_is_a_bad_sequence_by_itself_is_never_drawn() -> None:
    assert found(bad_words_ids=[[7], [3, 4], [9]]).banned == (5, 7, 9)


@pytest.mark.parametrize(
    ("fields", "plain_from"),
    [
        ({}, 0),
        ({"temperature": 0.0, "top_p": 0.5, "logit_bias": {3: 1.0}, "allowed_token_ids": [3]}, 0),
        ({"min_tokens": 3}, 3),
        ({"first_n_token_no_eos": 4, "min_tokens": 3}, 4),
        ({"golden_token_ids": [10, 11]}, 2),
        ({"bad_words_ids": [[3]]}, 0),
        ({"bad_words_ids": [[3], [4, 5]]}, None),
        ({"repetition_penalty": 1.1}, None),
        ({"frequency_penalty": 0.1}, None),
        ({"presence_penalty": -0.1}, None),
    ],
)
def test_rows_are_plain_once_nothing_depends_on_what_was_drawn(
    fields: dict[str, Any], plain_from: int | None
) -> None:
    assert found(max_tokens=9, **fields).plain_from == plain_from


def test_control_tokens_are_text_only_if_they_are_wanted(tokenizer: Tokenizer) -> None:
    assert CONTROL not in found(tokenizer).pieces
    shown = found(tokenizer, skip_special_tokens=False).pieces
    assert shown[CONTROL] == tokenizer.pieces[CONTROL] != b""
    assert found(tokenizer).pieces[74] == b"A"


def test_without_a_tokenizer_no_token_is_text() -> None:
    assert found(None).pieces == {}
