"""What clients of a stopping service got."""

import pytest
from deepinfer_core.testing.answer_ends import ending_of

OK = b"HTTP/1.1 200 OK\r\n"
JSON = b"content-type: application/json\r\n"
EVENTS = (
    OK + b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)


def stream(*events: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    return EVENTS + b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in events) + end


@pytest.mark.parametrize(
    "answer",
    [
        OK + JSON + b'content-length: 7\r\n\r\n{"a":1}',
        stream(b"data: {}\n\n", b"data: [DONE]\n\n"),
        stream(b"event: response.completed\ndata: {}\n\n"),
        stream(b"event: response.incomplete\ndata: {}\n\n"),
        stream(b"event: message_stop\ndata: {}\n\n"),
    ],
)
def test_an_answer_with_its_own_end_is_whole(answer: bytes) -> None:
    assert ending_of(answer) == "whole"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 503 Busy\r\n" + JSON + b'content-length: 13\r\n\r\n{"error": {}}',
        stream(b"data: {}\n\n", b'data: {"error": {}}\n\n'),
        stream(b"event: response.failed\ndata: {}\n\n"),
        stream(b'event: error\ndata: {"type": "error"}\n\n'),
    ],
)
def test_an_answer_that_says_that_it_failed_is_an_error(answer: bytes) -> None:
    assert ending_of(answer) == "error"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        OK,
        OK + JSON + b'content-length: 8\r\n\r\n{"a":1}',
        stream(),
        stream(b"data: {}\n\n"),
        stream(b"data: [DONE]\n\n", b"data: "),
        stream(b"data: {}\n\n", b"data: [DONE]\n\n", end=b""),
        stream(b'event: error\ndata: {"type": "error"}\n\n', end=b"5\r\nda"),
        b"HTTP/1.1 500 Oh\r\n" + JSON + b"content-length: 13\r\n\r\n" + b'{"error": {}}',
    ],
)
def test_everything_else_is_cut(answer: bytes) -> None:
    assert ending_of(answer) == "cut"
