"""Bodies of requests: which field becomes what, and what is refused."""

import sys
from typing import Any

import pytest
from deepinfer_core.batch.bodies import Asked, read_body
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import RequestError

MESSAGES = [{"role": "user", "content": "hi"}]


def completion(**body: Any) -> Asked:
    return read_body("completion", {"prompt": "x", **body}, 5)


def chat(**body: Any) -> Asked:
    return read_body("chat", {"messages": MESSAGES, **body}, 5)


def test_fields_become_sampling_parameters() -> None:
    asked = completion(
        model="m", max_tokens=7, temperature=0.5, top_p=0.9, seed=3, stop=["a", "b"], logprobs=2
    )
    params = asked.params
    assert (asked.model, asked.prompt, asked.messages) == ("m", "x", None)
    assert (params.max_tokens, params.temperature, params.top_p) == (7, 0.5, 0.9)
    assert (params.seed, params.stop_strings, params.alternatives) == (3, ("a", "b"), 2)


def test_extended_fields_become_sampling_parameters() -> None:
    params = completion(
        top_k=4, min_p=0.1, min_tokens=2, stop_token_ids=[9], ignore_eos=True
    ).params
    assert (params.top_k, params.min_p, params.min_tokens) == (4, 0.1, 2)
    assert (params.stop_ids, params.ignore_eos) == ((9,), True)


def test_penalties_and_bias_become_sampling_parameters() -> None:
    asked = completion(
        presence_penalty=1, frequency_penalty=-0.5, repetition_penalty=1.2, logit_bias={"3": -100}
    )
    same = SamplingParams(
        presence_penalty=1,
        frequency_penalty=-0.5,
        repetition_penalty=1.2,
        logit_bias={3: -100},
        seed=5,
    )
    assert asked.params == same


def test_defaults_are_those_of_the_public_interface() -> None:
    asked = completion()
    assert (asked.params.max_tokens, asked.params.temperature, asked.model) == (16, 1.0, "")
    assert asked.params.alternatives is None


def test_a_request_without_a_seed_gets_the_given_one() -> None:
    assert completion().params.seed == 5
    assert completion(seed=None).params.seed == 5
    assert completion(seed=0).params.seed == 0


def test_null_is_the_same_as_no_field() -> None:
    assert completion(stop=None, temperature=None, foo=None, n=None) == completion()


def test_a_conversation_without_a_limit_ends_with_the_engine() -> None:
    assert chat().params.max_tokens == 2**31 - 1
    assert chat().messages == MESSAGES


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_both_names_limit_a_conversation(name: str) -> None:
    assert chat(**{name: 9}).params.max_tokens == 9


def test_logprobs_of_a_conversation_are_a_flag_with_a_number_beside_it() -> None:
    assert chat(logprobs=True).params.alternatives == 0
    assert chat(logprobs=True, top_logprobs=3).params.alternatives == 3
    assert chat(logprobs=False).params.alternatives is None


def test_logprobs_zero_of_a_completion_ask_for_the_tokens_own() -> None:
    assert completion(logprobs=0).params.alternatives == 0


@pytest.mark.parametrize(
    ("prompt", "found"),
    [("x", "x"), (["x"], "x"), ([1, 2], (1, 2)), ([[1, 2]], (1, 2)), ([], ()), ([7], (7,))],
)
def test_a_prompt_is_a_text_or_token_ids(prompt: Any, found: Any) -> None:
    assert completion(prompt=prompt).prompt == found


@pytest.mark.parametrize("prompt", [None, 1, {}, ["a", "b"], [[1], [2]], [True], [-1], [1.5]])
def test_another_prompt_is_refused(prompt: Any) -> None:
    with pytest.raises(RequestError, match="prompt"):
        completion(prompt=prompt)


@pytest.mark.parametrize(
    "body",
    [{"n": 1}, {"stream": False}, {"echo": False}, {"best_of": 1}],
)
def test_a_field_with_its_only_value_is_accepted(body: dict[str, Any]) -> None:
    assert completion(**body) == completion()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"n": 2}, "n is 2"),
        ({"n": True}, "n is True"),
        ({"stream": True}, "stream is True"),
        ({"stream": 0}, "stream is 0"),
        ({"frequency_penalty": 5}, "frequency_penalty is 5"),
        ({"logit_bias": {"x": 1}}, "logit_bias is {'x': 1}"),
        ({"logit_bias": [1]}, "logit_bias is [1]"),
        ({"logit_bias": {"3": 101}}, "logit_bias"),
        ({"foo": 1}, "unknown field foo"),
        ({"foo": 1, "bar": 2}, "unknown fields bar, foo"),
        ({"messages": MESSAGES}, "unknown field messages"),
        ({"max_completion_tokens": 1}, "unknown field max_completion_tokens"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"temperature": "hot"}, "temperature is 'hot'"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"seed": -1}, "seed is -1"),
        ({"logprobs": 21}, "logprobs is 21"),
        ({"logprobs": True}, "logprobs is True"),
        ({"model": 1}, "model is no text"),
    ],
)
def test_a_field_that_cannot_be_is_named(body: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as raised:
        completion(**body)
    assert raised.value.message == message or raised.value.message.startswith(message)
    assert raised.value.hint


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"prompt": "x"}, "unknown field prompt"),
        ({"messages": "hi"}, "messages are missing"),
        ({"messages": None}, "messages are missing"),
        ({"messages": ["hi"]}, "messages are missing or no list of objects"),
        ({"logprobs": 1}, "logprobs is 1"),
        ({"top_logprobs": 1}, "top_logprobs is set without logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs is 21"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "max_completion_tokens is 2"),
    ],
)
def test_a_field_of_a_conversation_that_cannot_be_is_named(
    body: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError) as raised:
        chat(**body)
    assert raised.value.message.startswith(message)


HUGE = 10**400
"""A number that JSON can hold and a float cannot."""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", HUGE),
        ("logit_bias", {"1": HUGE}),
        ("logit_bias", {"9" * 5000: 1}),
        ("logit_bias", {"9" * 21: 1}),
    ],
    ids=["number", "bias", "token of many digits", "token of one digit too many"],
)
def test_a_number_beyond_all_bounds_is_the_fault_of_its_request(name: str, value: Any) -> None:
    with pytest.raises(RequestError, match=name):
        completion(**{name: value})


@pytest.mark.parametrize("name", ["n", "stop", "logit_bias", "max_tokens"])
def test_lists_within_lists_without_end_are_the_fault_of_their_request(name: str) -> None:
    value: list[Any] = []
    for _ in range(sys.getrecursionlimit()):
        value = [value]
    with pytest.raises(RequestError, match=name):
        completion(**{name: value})
