"""What earlier tokens say about the next one."""

import pytest
from deepinfer_core.engine.token_history import last_of_bad_sequences, seen_tokens


def test_tokens_are_counted_in_the_output_and_listed_from_the_prompt() -> None:
    found = seen_tokens([5, 6, 5, 7], [7, 8, 8], with_prompt=True)
    assert sorted(found) == [(5, 0), (6, 0), (7, 1), (8, 2)]


def test_the_prompt_can_be_left_out() -> None:
    assert sorted(seen_tokens([5, 6], [6, 8, 8], with_prompt=False)) == [(6, 1), (8, 2)]
    assert seen_tokens([5, 6], [], with_prompt=False) == ()


@pytest.mark.parametrize(
    ("output", "banned"),
    [
        ([], {9}),
        ([1], {2, 9}),
        ([1, 2], {3, 9}),
        ([2], {9}),
        ([1, 2, 3], {9}),
        ([5, 1, 2], {3, 9}),
        ([1, 1], {2, 9}),
        ([1, 2, 1], {2, 9}),
    ],
)
def test_the_last_token_is_banned_right_behind_all_others(
    output: list[int], banned: set[int]
) -> None:
    assert last_of_bad_sequences(output, [(1, 2), (1, 2, 3), (9,)]) == banned


def test_a_token_may_repeat_within_a_sequence() -> None:
    assert last_of_bad_sequences([4], [(4, 4, 4)]) == set()
    assert last_of_bad_sequences([4, 4], [(4, 4, 4)]) == {4}
