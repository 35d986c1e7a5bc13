"""Lines of the input: what is a request, and what identifies it."""

import json
from typing import Any

import pytest
from deepinfer_core.batch.lines import read_line

GOOD: dict[str, Any] = {
    "custom_id": "a",
    "method": "POST",
    "url": "/v1/completions",
    "body": {"prompt": "x"},
}


def spelled(**changes: Any) -> bytes:
    line = GOOD | changes
    return json.dumps({key: value for key, value in line.items() if value != "absent"}).encode()


def test_a_request_is_read_with_its_body() -> None:
    line = read_line(spelled(), 7)
    assert (line.number, line.custom_id, line.kind) == (7, "a", "completion")
    assert (line.body, line.error) == ({"prompt": "x"}, None)
    assert read_line(spelled(url="/v1/chat/completions"), 1).kind == "chat"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "this is not JSON"),
        (b"\xff", "this is not JSON"),
        (b"[" * 100_000, "this is not JSON"),
        (spelled().decode().encode("utf-16"), "this is not JSON"),
        (b"\xef\xbb\xbf" + spelled(), "this is not JSON"),
        (spelled()[:-1] + b', "body": {}}', "this is not JSON: the key body stands twice"),
        (spelled(body={"n": 1})[:-2] + b', "n": 1}}', "this is not JSON: the key n stands twice"),
        (b"[1]", "this is no JSON object"),
        (spelled(custom_id="absent"), "custom_id is missing"),
        (spelled(custom_id=""), "custom_id is missing, empty"),
        (spelled(custom_id=7), "custom_id is missing, empty or no text"),
        (spelled(method="GET"), "method is 'GET'"),
        (spelled(method="absent"), "method is None"),
        (spelled(url="/v1/embeddings"), "url is '/v1/embeddings'"),
        (spelled(body="absent"), "body is missing"),
        (spelled(body=[1]), "body is missing or no object"),
        (spelled(priority=1), "unknown key 'priority'"),
    ],
)
def test_a_line_that_is_no_request_says_why_and_where(content: bytes, message: str) -> None:
    line = read_line(content, 3)
    assert line.error is not None
    assert line.error.message.startswith(f"line 3: {message}")
    assert line.body == {}


def test_a_bad_line_keeps_the_custom_id_that_it_has() -> None:
    assert read_line(spelled(method="GET"), 1).custom_id == "a"


def test_the_identity_depends_on_content_and_not_on_the_place() -> None:
    assert read_line(spelled(), 1).line_id == read_line(spelled(), 2).line_id
    assert read_line(spelled(), 1).line_id != read_line(spelled(body={"prompt": "y"}), 1).line_id


def test_equal_lines_without_a_custom_id_differ_by_their_place() -> None:
    assert read_line(b"{}", 1).line_id != read_line(b"{}", 2).line_id
    assert read_line(b"{}", 1).line_id == read_line(b"{}", 1).line_id
