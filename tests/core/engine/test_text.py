"""Text from tokens: characters whole, stop strings found whatever the split."""

import itertools
from collections.abc import Sequence

import pytest
from deepinfer_core.engine.text import TextStream
from hypothesis import given
from hypothesis import strategies as st


def stream(pieces: Sequence[bytes], stops: tuple[str, ...] = (), **options: bool) -> TextStream:
    found = TextStream(stops, **options)
    for piece in pieces:
        found.push(piece)
    found.end()
    return found


def test_a_character_is_given_out_when_its_last_byte_has_come() -> None:
    text = TextStream()
    given = []
    for byte in "é世𠮷".encode():
        text.push(bytes([byte]))
        given.append(text.take())
    assert given == ["", "é", "", "", "世", "", "", "", "𠮷"]


def test_an_unfinished_character_at_the_end_is_replaced() -> None:
    assert stream([b"a", "世".encode()[:2]]).text == "a\ufffd"


def test_malformed_bytes_do_not_block_what_follows() -> None:
    text = TextStream()
    text.push(b"a\xff")
    text.push(b"b")
    assert text.take() == "a\ufffdb"


def test_an_unfinished_character_is_replaced_where_it_began_to_stand() -> None:
    text = TextStream()
    given = []
    for piece in ("世".encode()[:2], b"a", b"b"):
        text.push(piece)
        given.append(text.take())
    assert given == ["", "\ufffda", "b"]


def test_a_stop_string_within_a_token_ends_the_text_before_it() -> None:
    found = stream([b"one STOP two"], ("STOP",))
    assert (found.text, found.stopped) == ("one ", True)


def test_a_stop_string_can_be_kept() -> None:
    assert stream([b"one ST", b"OP two"], ("STOP",), include_stop=True).text == "one STOP"


def test_text_that_may_become_a_stop_string_is_held_back() -> None:
    text = TextStream(("abcd",))
    text.push(b"xxab")
    assert text.take() == "xx"
    text.push(b"c")
    assert text.take() == ""
    text.push(b"e")
    assert text.take() == "abce"


def test_what_is_held_back_is_given_out_at_the_end() -> None:
    text = TextStream(("abcd",))
    text.push(b"xxabc")
    text.end()
    assert text.take() == "xxabc"


def test_a_stop_string_that_overlaps_itself_is_found() -> None:
    assert stream([b"aa", b"a", b"b"], ("aab",)).text == "a"


def test_the_stop_string_that_ends_first_wins() -> None:
    assert stream([b"x abcde"], ("abcde", "cd")).text == "x ab"
    assert stream([b"x abcd"], ("d", "bcd")).text == "x a"


def test_text_that_is_not_searched_cannot_stop() -> None:
    text = TextStream(("ab",))
    text.push(b"ab a", searched=False)
    text.push(b"b ab")
    assert (text.take(), text.stopped) == ("ab ab ", True)


def test_nothing_is_accepted_after_a_stop() -> None:
    text = TextStream(("b",))
    text.push(b"ab")
    text.push(b"more")
    text.end()
    assert text.text == "a"


def test_a_stop_string_of_several_bytes_a_character_is_found() -> None:
    assert stream([bytes([byte]) for byte in "甲乙丙".encode()], ("乙",)).text == "甲"


WORDS = st.text(alphabet="ab世", max_size=12)
STOPS = st.lists(st.text(alphabet="ab世", min_size=1, max_size=3), max_size=3).map(tuple)


@given(text=WORDS, stops=STOPS, data=st.data(), keep=st.booleans())
def test_the_result_does_not_depend_on_the_split(
    text: str, stops: tuple[str, ...], data: st.DataObject, keep: bool
) -> None:
    whole = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    edges = [0, *cuts, len(whole)]
    pieces = [whole[a:b] for a, b in itertools.pairwise(edges)]
    split = stream(pieces, stops, include_stop=keep)
    one = stream([whole], stops, include_stop=keep)
    assert (split.text, split.stopped) == (one.text, one.stopped)


@given(text=WORDS, stops=STOPS)
def test_what_was_given_out_is_the_beginning_of_the_result(
    text: str, stops: tuple[str, ...]
) -> None:
    found = TextStream(stops)
    given = ""
    for byte in text.encode():
        found.push(bytes([byte]))
        given += found.take()
        assert not any(stop in given for stop in stops)
    found.end()
    assert given + found.take() == found.text


@pytest.mark.parametrize("length", [0, 1, 2, 3])
def test_a_text_shorter_than_the_stop_string_is_whole(length: int) -> None:
    assert stream([b"abcd"[:length]], ("abcd",)).text == "abcd"[:length]
