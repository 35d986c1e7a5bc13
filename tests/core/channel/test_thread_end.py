"""The end of a process that works in threads."""

import socket
import time
from itertools import islice
from threading import Thread

import msgspec
import pytest
from deepinfer_core.channel.frames import ChannelBroken
from deepinfer_core.channel.language import Language, MessageTooLarge
from deepinfer_core.channel.thread_end import ThreadEnd

Pair = tuple[socket.socket, socket.socket]

WAIT_S = 10


class Say(msgspec.Struct, frozen=True, tag=True):
    number: int
    data: bytes = b""


FRONT: Language[Say, Say] = Language(
    name="test", revision=1, version="1", says=Say, hears=Say, max_bytes=1 << 22
)
BACK = FRONT.reversed()
LARGE = b"x" * (1 << 21)
"""More than a pair of sockets holds."""


def ends(sockets: Pair, **options: int) -> tuple[ThreadEnd[Say, Say], ThreadEnd[Say, Say]]:
    ours, theirs = sockets
    return ThreadEnd(ours, FRONT, **options), ThreadEnd(theirs, BACK)


def test_messages_come_in_order_until_the_other_side_closes(sockets: Pair) -> None:
    ours, theirs = ends(sockets)
    for number in range(100):
        ours.send(Say(number))
    ours.close()
    assert [message.number for message in theirs.messages()] == list(range(100))
    theirs.close()


def test_messages_of_several_threads_come_whole(sockets: Pair) -> None:
    ours, theirs = ends(sockets)

    def speak(first: int) -> None:
        for number in range(first, first + 50):
            ours.send(Say(number, b"y" * number * 100))

    threads = [Thread(target=speak, args=(1000 * one,)) for one in range(3)]
    for thread in threads:
        thread.start()
    found = list(islice(theirs.messages(), 150))
    for thread in threads:
        thread.join(WAIT_S)
    assert all(message.data == b"y" * message.number * 100 for message in found)
    for first in (0, 1000, 2000):
        own = [one.number for one in found if first <= one.number < first + 1000]
        assert own == list(range(first, first + 50))
    ours.close()
    theirs.close()


def test_whoever_sends_does_not_wait_for_a_side_that_does_not_listen(sockets: Pair) -> None:
    ours, theirs = ends(sockets)
    for number in range(8):
        ours.send(Say(number, LARGE))  # would never return if it waited: nobody listens yet
    ours.send(Say(8))
    assert ours.backlog_bytes > 0
    found = list(islice(theirs.messages(), 9))
    assert [message.number for message in found] == list(range(9))
    ours.close()
    theirs.close()


def test_closing_waits_for_the_backlog_if_it_is_told_to(sockets: Pair) -> None:
    ours, theirs = ends(sockets)
    for number in range(4):
        ours.send(Say(number, LARGE))
    closing = Thread(target=ours.close, kwargs={"wait_s": WAIT_S})
    closing.start()
    assert [message.number for message in theirs.messages()] == [0, 1, 2, 3]
    closing.join(WAIT_S)
    assert not closing.is_alive()
    theirs.close()


def test_a_side_that_never_listens_is_given_up_at_a_limit(sockets: Pair) -> None:
    ours, _ = ends(sockets, max_backlog_bytes=1 << 22)
    for number in range(4):
        ours.send(Say(number, LARGE))
    assert ours.backlog_bytes == 0
    assert list(ours.messages()) == []
    ours.close()


def test_sending_to_a_side_that_has_gone_does_nothing(sockets: Pair) -> None:
    ours, theirs = ends(sockets)
    theirs.close()
    for number in range(3):
        ours.send(Say(number, LARGE))
    assert ours.backlog_bytes == 0
    ours.close()
    ours.send(Say(4))


def test_closing_ends_whoever_listens_and_may_be_done_again(sockets: Pair) -> None:
    ours, theirs = ends(sockets)
    heard: list[Say] = []
    listener = Thread(target=lambda: heard.extend(theirs.messages()))
    listener.start()
    time.sleep(0.01)  # it may listen by now; the outcome is the same if it does not
    theirs.close()
    theirs.close()
    listener.join(WAIT_S)
    assert not listener.is_alive()
    assert heard == []
    ours.close()


def test_a_message_that_is_too_large_is_not_sent(sockets: Pair) -> None:
    ours, theirs = ends(sockets)
    with pytest.raises(MessageTooLarge):
        ours.send(Say(1, LARGE * 3))
    ours.send(Say(2))
    assert next(theirs.messages()).number == 2
    ours.close()
    theirs.close()


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_side_that_goes_away_within_a_message_has_broken_the_channel(
    sockets: Pair, cut: int
) -> None:
    ours, theirs = sockets
    end = ThreadEnd(theirs, BACK)
    ours.sendall(FRONT.greeting() + FRONT.pack(Say(1)) + FRONT.pack(Say(2, b"z" * 50))[:cut])
    ours.close()
    messages = end.messages()
    assert next(messages) == Say(1)
    with pytest.raises(ChannelBroken, match="within a message"):
        next(messages)
    end.close()


def test_bytes_that_are_no_message_break_the_channel(sockets: Pair) -> None:
    ours, theirs = sockets
    end = ThreadEnd(theirs, BACK)
    ours.sendall(FRONT.greeting() + b"\x01\x00\x00\x00\xc1")  # a byte that MessagePack has not
    with pytest.raises(ChannelBroken, match="cannot be read"):
        next(end.messages())
    end.close()


def test_a_side_that_does_not_greet_is_not_heard(sockets: Pair) -> None:
    ours, theirs = sockets
    end = ThreadEnd(theirs, BACK)
    ours.sendall(FRONT.pack(Say(1)))
    with pytest.raises(ChannelBroken, match="did not greet"):
        next(end.messages())
    end.close()
