"""Sampling parameters: every field checked, by name, value and range."""

import dataclasses
import math
from typing import Any

import numpy
import pytest
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import RequestError

NAN, INF = math.nan, math.inf
BIG = 1 << 31

REFUSED: list[tuple[str, Any]] = [
    *[("temperature", x) for x in (-0.1, NAN, INF, True, "1", None, 1 << 64, 1e39)],
    *[("top_p", x) for x in (0, -1, 1.01, NAN, False, "0.5")],
    *[("min_p", x) for x in (1, 1.5, -0.1, NAN, True)],
    *[("n", x) for x in (0, -1, 129, 1.0, True, None)],
    *[("repetition_penalty", x) for x in (0, 0.009, 100.1, -1, NAN, True, None)],
    *[("frequency_penalty", x) for x in (-2.1, 2.1, NAN, INF, True, "1")],
    *[("presence_penalty", x) for x in (-2.1, 2.1, NAN, INF, True, "1")],
    *[("logit_bias", x) for x in (1, "1", [1], [(1, 2, 3)], {"1": 1}, {-1: 1}, {True: 1})],
    *[("logit_bias", {7: x}) for x in (100.1, -100.1, NAN, "1", None, True)],
    ("logit_bias", [(1, 2), (1, 3)]),
    *[("allowed_token_ids", x) for x in ([], 1, "1", [-1], [True], [1.0])],
    *[("bad_words", x) for x in ("", " ", ["a", ""], ["a", " \n"], ["a", 1], 3, b"a", {"a": 1})],
    *[("bad_words_ids", x) for x in (1, "1", [1], [[]], [[1], []], [[-1]], [["1"]], [[True]])],
    *[("top_k", x) for x in (0, -2, 1.0, True, BIG, "1", None)],
    *[("max_tokens", x) for x in (0, -1, 1.5, True, BIG, None)],
    *[("min_tokens", x) for x in (-1, True, 0.5)],
    *[("first_n_token_no_eos", x) for x in (-1, True)],
    *[("seed", x) for x in (-1, 1 << 64, 0.0, True, "1")],
    *[("seq_seed", x) for x in (-1, 1 << 64, True)],
    *[("stop", x) for x in ("", [""], ["a", 1], 3, b"a", ["a"] * 17, {"a": 1}, [["a"]])],
    *[("stop_token_ids", x) for x in (1, "1", [-1], [True], [1.0])],
    *[("golden_token_ids", x) for x in (1, [-1], ["1"])],
    *[("logprobs", x) for x in (-1, 21, 1.0, "yes")],
    *[("top_logprobs", x) for x in (-1, 21)],
    *[("prompt_logprobs", x) for x in (-1, 21)],
    *[("ignore_eos", x) for x in (1, None, "no")],
    *[("skip_special_tokens", x) for x in (1, None)],
    *[("include_stop_str_in_output", x) for x in (0, None)],
    ("so_args", {"schema_type": "regex"}),
]


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_a_bad_value_is_refused_by_the_name_of_its_field(name: str, value: Any) -> None:
    with pytest.raises(RequestError, match=name) as caught:
        SamplingParams(**{name: value})
    assert caught.value.hint


@pytest.mark.parametrize("name", ["temperature", "seed", "max_tokens", "stop_token_ids"])
@pytest.mark.parametrize("digits", [400, 5000])
def test_an_integer_that_is_no_float_or_has_no_text_is_refused_too(name: str, digits: int) -> None:
    value: Any = -(10**digits)
    with pytest.raises(RequestError, match=name):
        SamplingParams(**{name: [value] if name == "stop_token_ids" else value})


ADMITTED: list[tuple[str, Any]] = [
    *[("temperature", x) for x in (0, 1e-9, 5, numpy.float32(0.5))],
    *[("top_p", x) for x in (1e-9, 1)],
    *[("min_p", x) for x in (0, 0.999)],
    *[("top_k", x) for x in (-1, 1, BIG - 1, numpy.int64(3))],
    *[("max_tokens", x) for x in (1, BIG - 1)],
    *[("seed", x) for x in (None, 0, (1 << 64) - 1)],
    *[("logprobs", x) for x in (None, False, True, 0, 20)],
    *[("n", x) for x in (1, 128)],
    *[("repetition_penalty", x) for x in (0.01, 1, 100)],
    *[("frequency_penalty", x) for x in (-2, 0, 2)],
    *[("presence_penalty", x) for x in (-2, 0, 2)],
    *[("allowed_token_ids", x) for x in (None, (0,))],
]


@pytest.mark.parametrize(("name", "value"), ADMITTED)
def test_the_edges_of_a_range_are_admitted(name: str, value: Any) -> None:
    assert getattr(SamplingParams(**{name: value}), name) == value


def test_the_message_shows_the_value_and_the_range() -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(top_p=1.5)
    assert caught.value.message == "top_p is 1.5"
    assert caught.value.hint == "top_p must be a number above 0 and at most 1"


def test_the_message_of_a_bias_names_its_token() -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(logit_bias={7: 101})
    assert caught.value.message == "logit_bias[7] is 101"
    assert caught.value.hint == "logit_bias[7] must be a number from -100 to 100"


def test_the_message_of_a_bad_sequence_names_its_place() -> None:
    with pytest.raises(RequestError, match=r"bad_words_ids\[1\] is \(\)"):
        SamplingParams(bad_words_ids=[[1], []])


def test_biases_are_pairs_in_the_order_of_their_tokens() -> None:
    params = SamplingParams(logit_bias={numpy.int64(9): 100, 2: numpy.float32(-100)})
    assert params.biases == ((2, -100.0), (9, 100.0))
    assert SamplingParams(logit_bias=[(9, 1), (2, 0.5)]).biases == ((2, 0.5), (9, 1.0))
    assert SamplingParams().biases == ()


def test_bad_words_and_sequences_become_tuples_without_repetitions() -> None:
    params = SamplingParams(bad_words=["a", "b", "a"], bad_words_ids=[[1, 2], (3,), [1, 2]])
    assert params.bad_texts == ("a", "b")
    assert params.bad_sequences == ((1, 2), (3,))
    assert SamplingParams(bad_words="a").bad_texts == ("a",)


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(stop=["x" * 1000, ""])
    assert len(caught.value.message) < 100


def test_an_unknown_field_is_an_error() -> None:
    with pytest.raises(TypeError, match="presence"):
        SamplingParams(presence=1)  # type: ignore[call-arg]


def test_min_tokens_above_max_tokens_is_refused() -> None:
    with pytest.raises(RequestError, match="min_tokens is 5, above max_tokens 4"):
        SamplingParams(min_tokens=5, max_tokens=4)
    SamplingParams(min_tokens=4, max_tokens=4)


def test_seq_seed_is_another_name_of_seed() -> None:
    assert SamplingParams(seq_seed=7).seed == 7
    assert SamplingParams(seed=7, seq_seed=7).seed == 7
    with pytest.raises(RequestError, match="seed is 0 and seq_seed is 7"):
        SamplingParams(seed=0, seq_seed=7)


def test_one_stop_string_is_the_same_as_a_list_of_one() -> None:
    assert SamplingParams(stop="ab").stop_strings == ("ab",)
    assert SamplingParams(stop=["ab", "c", "ab"]).stop_strings == ("ab", "c")
    assert SamplingParams().stop_strings == ()


def test_token_ids_of_any_integer_type_become_a_tuple_of_int() -> None:
    params = SamplingParams(stop_token_ids=numpy.array([3, 4]), golden_token_ids=range(2))
    assert params.stop_ids == (3, 4)
    assert params.golden_ids == (0, 1)
    assert type(params.stop_ids[0]) is int


@pytest.mark.parametrize(
    ("fields", "alternatives"),
    [
        ({}, None),
        ({"logprobs": None}, None),
        ({"logprobs": True}, 0),
        ({"logprobs": 0}, 0),
        ({"logprobs": 3}, 3),
        ({"top_logprobs": 2}, 2),
        ({"logprobs": True, "top_logprobs": 2}, 2),
        ({"logprobs": 5, "top_logprobs": 2}, 5),
    ],
)
def test_the_number_of_alternatives_follows_from_both_fields(
    fields: dict[str, Any], alternatives: int | None
) -> None:
    assert SamplingParams(**fields).alternatives == alternatives


def test_params_cannot_be_changed_and_can_be_copied() -> None:
    rules = {"logit_bias": {4: 1}, "allowed_token_ids": [1, 4], "bad_words_ids": [[1, 4]]}
    params = SamplingParams(stop="a", stop_token_ids=[1], seq_seed=3, bad_words="b", **rules)
    with pytest.raises(dataclasses.FrozenInstanceError):
        params.seed = 1  # type: ignore[misc]
    changed = dataclasses.replace(params, top_k=5)
    assert (changed.stop_strings, changed.stop_ids, changed.seed) == (("a",), (1,), 3)
    assert (changed.biases, changed.allowed_ids) == (((4, 1.0),), (1, 4))
    assert (changed.bad_texts, changed.bad_sequences) == (("b",), ((1, 4),))
    assert hash(changed) == hash(dataclasses.replace(params, top_k=5))
