"""Does a client that leaves early know what it has seen?"""

import pytest
from deepinfer_core.testing.crowd import status_of

ANSWER = b"HTTP/1.1 429 Too Many Requests\r\n"


@pytest.mark.parametrize("seen", range(len(ANSWER) + 1))
def test_a_status_is_known_once_all_of_it_has_come(seen: int) -> None:
    assert status_of(ANSWER[:seen]) == (429 if seen >= len("HTTP/1.1 429") else 0)
