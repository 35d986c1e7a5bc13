"""Is every user that a protocol takes one that the engine takes, and told from all others?"""

import pytest
from deepinfer_core.engine.request_options import RequestOptions
from deepinfer_recipe_bridge.users import LONGEST_SALT, MAX_USER_BYTES, cache_salt

LONGEST = LONGEST_SALT - len('["k", ""]')


@pytest.mark.parametrize("length", [0, 1, LONGEST, LONGEST + 1, MAX_USER_BYTES])
@pytest.mark.parametrize("letter", ["a", '"'])
def test_a_salt_is_one_that_the_engine_takes(length: int, letter: str) -> None:
    user = letter * length
    assert RequestOptions(cache_salt=cache_salt("k", user)).cache_salt


def test_long_users_and_their_keys_are_told_apart() -> None:
    users = ["a" * 400, "a" * 399 + "b", "a" * 401]
    assert len({cache_salt(key, user) for key in ("", "k") for user in users}) == 6


def test_a_pair_that_fits_is_the_salt_itself() -> None:
    assert cache_salt("k", "a" * LONGEST) == f'["k", "{"a" * LONGEST}"]'
    assert len(cache_salt("k", "a" * (LONGEST + 1))) == 64
    assert cache_salt("", "") == ""
