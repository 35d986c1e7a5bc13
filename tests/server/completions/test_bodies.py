"""Bodies of text completions: what is taken, and what is refused by name."""

import dataclasses
from typing import Any

import pytest
from deepinfer_core.engine.body_fields import SAMPLING_FIELDS
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import RequestError
from deepinfer_core.server.completions.bodies import MORE_FIELDS, CompletionAsk, read_completion
from deepinfer_core.server.completions.foreign_fields import FOREIGN_FIELDS
from deepinfer_core.server.completions.output_form import FORM_FIELDS


def read(**fields: Any) -> CompletionAsk:
    return read_completion({"prompt": "a", **fields})


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("", ("",)),
        ([1, 2], ((1, 2),)),
        (["a", "b"], ("a", "b")),
        ([[1], [2, 3]], ((1,), (2, 3))),
        (["a", [1]], ("a", (1,))),
    ],
)
def test_prompts_are_texts_or_token_ids_or_lists_of_them(prompt: Any, expected: Any) -> None:
    assert read(prompt=prompt).prompts == expected


@pytest.mark.parametrize("prompt", [None, [], {}, 3, [[]], [1, -1], [True], [["a"]], ["a", 1]])
def test_other_prompts_are_refused(prompt: Any) -> None:
    with pytest.raises(RequestError, match="prompt"):
        read(prompt=prompt)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"n": 0}, "n is 0"),
        ({"n": 129}, "n is 129"),
        ({"n": True}, "n is True"),
        ({"best_of": 2}, "best_of is 2"),
        ({"n": 2, "best_of": 1}, "best_of is 1"),
        ({"best_of": True}, "best_of is True"),
        ({"echo": 1}, "echo is 1"),
        ({"stream": "yes"}, "stream is 'yes'"),
        ({"stream_options": {"include_usage": True}}, "without stream"),
        ({"stream": True, "stream_options": []}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "include_usage is 1"),
        ({"logprobs": 21}, "logprobs is 21"),
        ({"logprobs": -1}, "logprobs is -1"),
        ({"logprobs": True}, "logprobs is True"),
        ({"max_tokens": -1}, "max_tokens is -1"),
        ({"max_tokens": 1.5}, "max_tokens is 1.5"),
        ({"suffix": 1}, "suffix is 1"),
        ({"suffix": "a", "echo": True}, "suffix and echo"),
        ({"suffix": "a", "max_tokens": 4097}, "max_tokens is 4097"),
        ({"model": 1}, "model is 1"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"temperature": -1}, "temperature is -1"),
        ({"stop": [""]}, "stop"),
        ({"grammar": {"kind": "poem"}}, "grammar.kind is 'poem'"),
    ],
)
def test_a_wrong_field_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(**fields)
    assert named in caught.value.message


@pytest.mark.parametrize("name", sorted(FOREIGN_FIELDS))
def test_what_only_other_servers_do_is_refused_by_name_unless_it_is_nothing(name: str) -> None:
    taken = FOREIGN_FIELDS[name]
    assert read(**{name: taken}) == read()
    for value in (2, "x", ["x"], {"x": 1}, not taken):
        with pytest.raises(RequestError, match=name):
            read(**{name: value})


@pytest.mark.parametrize(
    "fields", [{"use_beam_search": 0}, {"add_special_tokens": 1}, {"length_penalty": True}]
)
def test_a_number_is_no_boolean_and_the_reverse(fields: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=next(iter(fields))):
        read(**fields)


@pytest.mark.parametrize(
    ("fields", "changed"),
    [
        ({"allowed_token_ids": [5]}, {"allowed_token_ids": (5,)}),
        ({"bad_words": "a"}, {"bad_words": ("a",)}),
        ({"bad_words_ids": [[5]]}, {"bad_words_ids": ((5,),)}),
        ({"first_n_token_no_eos": 2}, {"first_n_token_no_eos": 2}),
        ({"golden_token_ids": [5]}, {"golden_token_ids": (5,)}),
        ({"include_stop_str_in_output": True}, {"include_stop_str_in_output": True}),
        ({"seq_seed": 5}, {"seed": 5}),
        ({"skip_special_tokens": False}, {"skip_special_tokens": False}),
    ],
)
def test_fields_of_sampling_params_mean_the_same_here(
    fields: dict[str, Any], changed: dict[str, Any]
) -> None:
    params = read(**fields).params
    assert {name: getattr(params, name) for name in changed} == changed


def test_every_field_of_sampling_params_is_honoured_or_refused() -> None:
    honoured = {"n", "max_tokens", "logprobs", *SAMPLING_FIELDS, *MORE_FIELDS, *FORM_FIELDS}
    named = {field.name for field in dataclasses.fields(SamplingParams)}
    assert named <= honoured | set(FOREIGN_FIELDS)


@pytest.mark.parametrize("name", ["logit_bias", "stop_token_ids", "bad_words", "bad_words_ids"])
def test_a_list_that_costs_something_at_every_token_has_1024_members_at_most(name: str) -> None:
    def members(count: int) -> Any:
        if name == "logit_bias":
            return {str(token): 1 for token in range(count)}
        one = {"bad_words": "w", "bad_words_ids": [5]}.get(name, 5)
        return [one] * count

    read(**{name: members(1024)})
    with pytest.raises(RequestError, match=f"{name} has 1025 members"):
        read(**{name: members(1025)})


def test_null_is_a_field_that_is_not_there_and_unknown_fields_are_left_alone() -> None:
    empty = dict.fromkeys(("n", "best_of", "echo", "logprobs", "stop", "suffix", "max_tokens"))
    assert read(**empty, surprise=1) == read()


def test_the_largest_values_are_taken() -> None:
    assert read(n=128, best_of=128).samples == 128
    assert read(logprobs=20).params.alternatives == 20
    assert read(suffix="a", max_tokens=4096).params.max_tokens == 4096


def test_choices_of_one_call_are_bounded() -> None:
    assert len(read(prompt=["a"] * 512, n=2).prompts) == 512
    with pytest.raises(RequestError, match="choices"):
        read(prompt=["a"] * 1025)


def test_an_empty_suffix_is_no_gap() -> None:
    assert read(suffix="", echo=True).suffix == ""
