"""Messages in a stream of bytes, however it is cut and whatever is in it."""

from itertools import pairwise

import pytest
from deepinfer_core.channel.frames import HEADER_BYTES, ChannelBroken, FrameReader, finish_frame
from hypothesis import given
from hypothesis import strategies as st


def framed(message: bytes) -> bytes:
    frame = bytearray(HEADER_BYTES) + message
    finish_frame(frame)
    return bytes(frame)


def pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({cut % (len(stream) + 1) for cut in cuts} | {0, len(stream)})
    return [stream[a:b] for a, b in pairwise(ends)]


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(0, 400), max_size=12))
def test_the_messages_of_a_stream_do_not_depend_on_how_it_is_cut(
    messages: list[bytes], cuts: list[int]
) -> None:
    reader = FrameReader(40)
    found: list[bytes] = []
    for piece in pieces(b"".join(map(framed, messages)), cuts):
        found += map(bytes, reader.feed(piece))
    assert found == messages
    assert reader.is_between


@pytest.mark.parametrize("size", [0, 1, 9, 10])
def test_a_message_may_have_as_many_bytes_as_allowed(size: int) -> None:
    assert [*map(bytes, FrameReader(10).feed(framed(b"x" * size)))] == [b"x" * size]


@pytest.mark.parametrize("size", [11, (1 << 32) - 1])
def test_a_length_above_the_limit_is_refused_before_its_bytes_have_come(size: int) -> None:
    reader = FrameReader(10)
    with pytest.raises(ChannelBroken, match=f"{size:,} bytes"):
        list(reader.feed(size.to_bytes(HEADER_BYTES, "little")))


def test_messages_in_front_of_a_damaged_length_are_given() -> None:
    frames = FrameReader(10).feed(framed(b"good") + b"\xff\xff\xff\xff")
    assert bytes(next(frames)) == b"good"
    with pytest.raises(ChannelBroken):
        next(frames)


@pytest.mark.parametrize("cut", [1, HEADER_BYTES, HEADER_BYTES + 3])
def test_a_reader_knows_that_a_frame_is_not_whole(cut: int) -> None:
    reader = FrameReader(10)
    assert list(reader.feed(framed(b"abcd")[:cut])) == []
    assert not reader.is_between
    assert [bytes(frame) for frame in reader.feed(framed(b"abcd")[cut:])] == [b"abcd"]
    assert reader.is_between
