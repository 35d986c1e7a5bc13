"""What is read of a body?"""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import pytest
from deepinfer_core.errors import DeepInferError, RequestError
from deepinfer_core.server import body_values
from deepinfer_core.server.body import (
    ClientGone,
    check_type,
    has_body,
    parse_object,
    read_body,
)
from deepinfer_core.server.refusals import Refused
from hypothesis import given
from hypothesis import strategies as st

Json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def client(*pieces: bytes, pause_s: float = 0.0, goes: bool = False) -> Any:
    """A client that sends pieces, then goes away or stays."""
    messages = [
        {"type": "http.request", "body": piece, "more_body": goes or number < len(pieces) - 1}
        for number, piece in enumerate(pieces)
    ]

    async def receive() -> MutableMapping[str, Any]:
        await asyncio.sleep(pause_s)
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    return receive


def read(receive: Callable[[], Awaitable[Any]], *, most: int = 10, **headers: str) -> bytes:
    given = {name.replace("_", "-").encode(): text.encode() for name, text in headers.items()}
    return asyncio.run(read_body(receive, given, max_bytes=most, timeout_s=0.05))


@pytest.mark.parametrize("size", [0, 1, 9, 10])
def test_a_body_up_to_the_limit_is_read_in_any_pieces(size: int) -> None:
    data = b"x" * size
    assert read(client(data)) == data
    assert read(client(*[b"x"] * size, b"")) == data


def test_one_byte_more_is_refused_in_any_pieces() -> None:
    for pieces in ([b"x" * 11], [b"x"] * 11):
        with pytest.raises(Refused) as caught:
            read(client(*pieces))
        assert (caught.value.status, caught.value.code) == (413, "request_too_large")


def test_a_length_that_is_too_large_is_refused_before_anything_is_read() -> None:
    async def never() -> MutableMapping[str, Any]:
        raise AssertionError

    with pytest.raises(Refused) as caught:
        read(never, content_length="11")
    assert caught.value.status == 413


@pytest.mark.parametrize("pause_s", [1.0, 0.04])
def test_a_body_that_comes_too_slowly_is_refused(pause_s: float) -> None:
    # Each piece may take 0.05 s, and all of them ten times as long.
    with pytest.raises(Refused) as caught:
        read(client(*[b"x"] * 100, pause_s=pause_s), most=1000)
    assert caught.value.status == 408


def test_a_client_that_goes_away_is_noticed() -> None:
    with pytest.raises(ClientGone):
        read(client(b"x", goes=True))


@pytest.mark.parametrize(
    "kind",
    ["application/json", "Application/JSON; charset=utf-8", 'application/json;charset="UTF-8"'],
)
def test_json_is_taken(kind: str) -> None:
    check_type({b"content-type": kind.encode()})


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {b"content-type": b"text/plain"},
        {b"content-type": b"application/x-www-form-urlencoded"},
        {b"content-type": b"application/jsonp"},
        {b"content-type": b"application/json; charset=latin-1"},
        {b"content-type": b"\xff"},
        {b"content-type": b"application/json", b"content-encoding": b"gzip"},
    ],
)
def test_other_types_are_refused(headers: dict[bytes, bytes]) -> None:
    with pytest.raises(Refused) as caught:
        check_type(headers)
    assert caught.value.status == 415


def test_a_body_is_announced_by_its_length_or_its_encoding() -> None:
    assert has_body({b"content-length": b"1"})
    assert has_body({b"transfer-encoding": b"chunked"})
    assert not has_body({b"content-length": b"0"})
    assert not has_body({})


@given(st.dictionaries(st.text(), Json))
def test_every_object_is_read_as_it_was_written(value: dict[str, Any]) -> None:
    assert parse_object(json.dumps(value).encode()) == value


@given(st.binary(max_size=200))
def test_whatever_else_is_sent_is_refused_by_an_error_of_the_request(data: bytes) -> None:
    try:
        found = parse_object(data)
    except RequestError:
        return
    assert json.loads(data) == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "1",
        "null",
        '"x"',
        "{",
        '{"a":NaN}',
        '{"a":Infinity}',
        '{"a":1e999}',
        '{"a":"\\ud800"}',
        "{'a':1}",
        '{"a":1}{"b":2}',
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"a":' + "1" * 10_000 + "}",
    ],
)
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(RequestError):
        parse_object(text.encode())


def test_no_message_repeats_the_body() -> None:
    with pytest.raises(DeepInferError) as caught:
        parse_object(b'{"a": "secret" secret}')
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("depth", "fits"), [(127, True), (128, True), (129, False), (200, False)])
@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_a_body_is_nested_up_to_the_limit(depth: int, fits: bool, brackets: str) -> None:
    opening = "[" if brackets == "[]" else '{"a":'
    inner = opening * (depth - 1) + ("1" if depth > 1 else "") + brackets[1] * (depth - 1)
    text = f'{{"a":{inner}}}'.encode()
    if fits:
        assert parse_object(text)
    else:
        with pytest.raises(RequestError, match="128 levels"):
            parse_object(text)


def test_a_wide_body_is_not_a_deep_one() -> None:
    assert len(parse_object(json.dumps({"a": [[]] * 1000}).encode())["a"]) == 1000
    assert math.isclose(parse_object(b'{"a":1.5}')["a"], 1.5)


MOST = 131_072


@pytest.mark.parametrize(("count", "fits"), [(MOST - 1, True), (MOST, True), (MOST + 1, False)])
@pytest.mark.parametrize("kind", ["texts", "members", "lists", "apart"])
def test_a_body_has_values_up_to_the_limit(count: int, fits: bool, kind: str) -> None:
    inner = count - 1  # the list or object that holds them is one
    value: Any = {
        "texts": ["a"] * inner,
        "members": {str(place): 1 for place in range(inner)},
        "lists": [[]] * inner,
        "apart": [["a"] * 9] * (inner // 10) + ["a"] * (inner % 10),
    }[kind]
    text = json.dumps({"a": value}).encode()
    if fits:
        assert len(parse_object(text)["a"]) == len(value)
    else:
        with pytest.raises(RequestError, match="more than 131072 values"):
            parse_object(text)


def test_neither_numbers_in_lists_nor_signs_in_texts_count_as_values() -> None:
    body = {"prompt": [1] * (MOST + 1) + [0.5] * (MOST + 1), "text": "{[,]}" * MOST}
    assert parse_object(json.dumps(body).encode()) == body


MANY = 1 << 17


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,' + b'"b":1,' * (2 * MANY),
        b'{"a\\\\":1,' + b'"b\\\\":1,' * (2 * MANY),
        b'{"a":[' + b'"",' * (4 * MANY),
        b'{"a":[' + b"[]," * (4 * MANY),
        b'{"a":[' + b"1," * (17 * MANY),
    ],
    ids=["members", "members with backslashes", "texts", "lists", "numbers"],
)
def test_far_too_many_values_are_refused_before_the_text_is_read(text: bytes) -> None:
    # None of them is JSON: it has no end.
    with pytest.raises(RequestError, match="the body has more than 131072 values"):
        parse_object(text)


def test_what_looks_like_many_values_within_texts_is_taken() -> None:
    value = {"a": '{":[,\\"' * MANY, "b": "\\" * MANY, "c": list(range(8 * MANY))}
    assert parse_object(json.dumps(value).encode()) == value


@given(st.lists(st.sampled_from(['"', "\\", "a", ":", "{", ","]), max_size=12), st.booleans())
def test_a_text_ends_where_json_says_it_does(letters: list[str], is_last: bool) -> None:
    """The signs in it are not counted, those behind it are."""
    text = json.dumps("".join(letters)).encode()
    place = body_values._behind_string(b"[" + text + (b"" if is_last else b',"b"]'), 1)
    assert place == 1 + len(text)
