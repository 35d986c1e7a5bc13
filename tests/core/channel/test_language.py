"""What may be said, what is refused, and who may speak with whom."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from deepinfer_core.channel.frames import HEADER_BYTES, ChannelBroken
from deepinfer_core.channel.language import Language, MessageTooLarge
from hypothesis import given
from hypothesis import strategies as st


class Say(msgspec.Struct, frozen=True, tag=True):
    text: str


class Count(msgspec.Struct, frozen=True, tag=True):
    number: int
    share: float | None = None


class Answer(msgspec.Struct, frozen=True, tag=True):
    numbers: tuple[int, ...]


FRONT: Language[Say | Count, Answer] = Language(
    name="test", revision=3, version="1.2", says=Say | Count, hears=Answer, max_bytes=100
)
BACK = FRONT.reversed()

says = st.builds(Say, st.text(max_size=20))
counts = st.builds(Count, st.integers(-(1 << 63), (1 << 64) - 1), st.none() | st.floats(-1, 1))


def message_of(frame: bytearray) -> memoryview:
    return memoryview(frame)[HEADER_BYTES:]


@given(says | counts)
def test_each_message_comes_as_it_was_sent(message: Say | Count) -> None:
    assert BACK.unpack(message_of(FRONT.pack(message))) == message


def test_the_other_side_hears_what_this_one_says() -> None:
    answer = Answer((1, 2))
    assert FRONT.unpack(message_of(BACK.pack(answer))) == answer


@given(st.binary(max_size=60))
def test_bytes_are_a_message_or_break_the_channel(data: bytes) -> None:
    try:
        message = FRONT.unpack(memoryview(data))
    except ChannelBroken:
        return
    assert isinstance(message, Answer)


@pytest.mark.parametrize(
    "wrong", [Say("a"), {"type": "Answer", "numbers": "1"}, {"type": "Answer"}, [], None]
)
def test_a_message_of_another_form_breaks_the_channel(wrong: object) -> None:
    with pytest.raises(ChannelBroken, match="cannot be read"):
        FRONT.unpack(memoryview(msgspec.msgpack.encode(wrong)))


def test_a_deeply_nested_message_breaks_the_channel() -> None:
    with pytest.raises(ChannelBroken):
        FRONT.unpack(memoryview(b"\x91" * 100_000))


def test_a_message_is_refused_from_one_byte_above_the_limit() -> None:
    length = FRONT.max_bytes - len(message_of(FRONT.pack(Say("")))) - 1  # a longer text: one more
    assert len(message_of(FRONT.pack(Say("x" * length)))) == FRONT.max_bytes
    with pytest.raises(MessageTooLarge, match="101 bytes"):
        FRONT.pack(Say("x" * (length + 1)))


def test_what_cannot_be_sent_is_told_to_whoever_sends() -> None:
    with pytest.raises(TypeError):
        FRONT.pack(Say(object()))  # type: ignore[arg-type]


def test_both_sides_of_a_language_take_the_others_greeting() -> None:
    FRONT.check_greeting(message_of(BACK.greeting()))


@pytest.mark.parametrize("change", [{"name": "x"}, {"revision": 4}, {"version": "1.3"}])
def test_a_side_that_may_mean_something_else_is_refused(change: dict[str, Any]) -> None:
    other = replace(BACK, **change)
    with pytest.raises(ChannelBroken, match="other side speaks") as caught:
        FRONT.check_greeting(message_of(other.greeting()))
    assert "restart" in caught.value.hint


def test_a_message_is_no_greeting() -> None:
    with pytest.raises(ChannelBroken, match="did not greet"):
        FRONT.check_greeting(message_of(BACK.pack(Answer(()))))
