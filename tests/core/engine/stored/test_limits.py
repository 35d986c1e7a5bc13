"""How long does a request wait for a store, if nobody says so?"""

import pytest
from deepinfer_core.engine.stored.limits import match_timeout_s


@pytest.mark.parametrize(
    ("asked", "is_remote", "seconds"),
    [(None, False, 0.005), (None, True, 0.02), (0.1, False, 0.1), (0.001, True, 0.001)],
)
def test_a_store_that_asks_other_machines_has_more_time_to_say_what_is_there(
    asked: float | None, is_remote: bool, seconds: float
) -> None:
    assert match_timeout_s(asked, is_remote=is_remote) == seconds
