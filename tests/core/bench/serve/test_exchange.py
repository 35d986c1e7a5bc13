"""What do the bytes of an answer, and the times at which they came, say about it?"""

from itertools import pairwise

import pytest

pytest.importorskip("msgspec", reason="pip install 'deepinfer-core[bench]' runs these")

from deepinfer_core.bench.serve.exchange import Exchange


def event(text: str = "", more: str = "") -> bytes:
    return f'data: {{"choices": [{{"text": "{text}"{more}}}]}}\n\n'.encode()


USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 4}}\n\n'


def exchange(*pieces: bytes, status: int = 200) -> Exchange:
    """Due at 1, sent at 2, status at 3, a piece at 4, 5, 6 ..., over a second behind the last."""
    found = Exchange(kind="k", due_s=1.0, sent_s=2.0)
    found.begin(status, 3.0)
    for now_s, piece in enumerate(pieces, start=4):
        found.add(piece, float(now_s))
    found.end(4.0 + len(pieces))
    return found


def test_durations_count_from_the_moment_that_was_due() -> None:
    found = exchange(
        event(), event("a"), event("b"), event("c", ', "finish_reason": "stop"'), USAGE
    )
    assert (found.queue_s, found.first_token_s, found.total_s) == (2.0, 4.0, 8.0)
    assert found.gaps_s == [1.0, 1.0]
    assert (found.failure, found.answer) == ("", "abc")


def test_a_users_speed_is_that_of_the_tokens_behind_the_first_event() -> None:
    found = exchange(event("a"), event("bcd", ', "finish_reason": "stop"'), USAGE)
    assert (found.prompt_tokens, found.completion_tokens) == (7, 4)
    assert found.speed == 3.0


@pytest.mark.parametrize(
    "pieces", [[event("a"), USAGE], [event("a"), event(), USAGE.replace(b"4", b"1")]]
)
def test_one_event_or_one_token_has_no_speed(pieces: list[bytes]) -> None:
    assert exchange(*pieces).speed is None


def test_events_of_one_read_have_no_time_between_them() -> None:
    found = exchange(event("a") + event("b"))
    assert found.gaps_s == [0.0]
    assert found.speed is None
    assert [later >= earlier for earlier, later in pairwise(found.token_times_s)] == [True]


def test_a_stream_without_an_end_is_cut() -> None:
    assert exchange(event("a")).failure == "cut"
    assert exchange(event("a"), b"data: [DONE]\n\n").failure == ""


def test_a_status_that_is_no_success_is_told_with_its_words() -> None:
    found = exchange(b'{"error": {"message": "later"}}', status=429)
    assert (found.failure, found.detail) == ("http 429", '{"error": {"message": "later"}}')
    assert found.first_token_s is None


def test_an_error_within_a_stream_fails_it_although_it_is_whole() -> None:
    found = exchange(event("a"), b'data: {"error": {"message": "no"}}\n\n', b"data: [DONE]\n\n")
    assert found.failure == "stream"


def test_an_event_that_is_no_json_fails_the_exchange() -> None:
    assert exchange(b"data: nothing\n\n", b"data: [DONE]\n\n").failure == "form"


def test_the_first_failure_counts() -> None:
    found = Exchange(kind="k", due_s=0.0)
    found.fail("timeout")
    found.end(1.0)
    assert found.failure == "timeout"


def test_a_service_that_counts_nothing_has_its_events_counted() -> None:
    assert exchange(event("a"), event("b"), b"data: [DONE]\n\n").completion_tokens == 2
