"""Arguments of one call: those that do not fit together are refused before anything runs."""

from typing import Any

import pytest
from deepinfer_core.engine.prompts import pair_params, read_prompts
from deepinfer_core.errors import RequestError


@pytest.mark.parametrize("value", [5, 1.5, True])
def test_what_is_no_list_of_prompts_is_refused_by_name(value: Any) -> None:
    with pytest.raises(RequestError, match=r"^prompts is of type"):
        read_prompts(value, None)
    with pytest.raises(RequestError, match=r"^prompt_token_ids is of type"):
        read_prompts(None, value)


def test_a_dict_in_place_of_parameters_is_told_what_to_write() -> None:
    params: Any = {"max_tokens": 3}
    with pytest.raises(RequestError, match=r"^sampling_params is of type dict") as caught:
        pair_params(params, 1)
    assert caught.value.hint.startswith("give SamplingParams(...) with these values as keywords")


def test_a_text_in_place_of_parameters_is_refused_as_a_whole() -> None:
    params: Any = "greedy"
    with pytest.raises(RequestError, match=r"^sampling_params is of type str"):
        pair_params(params, 6)


def test_parameters_of_another_type_are_refused_by_name() -> None:
    params: Any = 5
    with pytest.raises(RequestError, match=r"^sampling_params is of type int"):
        pair_params(params, 1)
