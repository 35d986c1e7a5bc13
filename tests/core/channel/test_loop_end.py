"""The end of a process that runs an event loop."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest
from deepinfer_core.channel.frames import ChannelBroken
from deepinfer_core.channel.language import Language
from deepinfer_core.channel.loop_end import LoopEnd
from deepinfer_core.channel.thread_end import ThreadEnd

Pair = tuple[socket.socket, socket.socket]
Run = Callable[[Coroutine[Any, Any, None]], None]


class Say(msgspec.Struct, frozen=True, tag=True):
    number: int
    data: bytes = b""


FRONT: Language[Say, Say] = Language(name="test", revision=1, version="1", says=Say, hears=Say)
BACK = FRONT.reversed()
LARGE = b"x" * (1 << 21)
"""More than a pair of sockets holds."""


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine on a loop of either kind."""
    factory = asyncio.new_event_loop
    if request.param == "uvloop":
        factory = pytest.importorskip(
            "uvloop", reason="needs uvloop, which the extra serve brings"
        ).new_event_loop

    def run(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(main, 20))

    return run


class Heard:
    """What came, and how it ended."""

    def __init__(self) -> None:
        self.messages: list[Say] = []
        self.ends: list[ChannelBroken | None] = []
        self.changed = asyncio.Event()

    async def open(self, connection: socket.socket) -> LoopEnd[Say, Say]:
        return await LoopEnd.open(connection, FRONT, self._hear, self._end)

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()

    def _hear(self, message: Say) -> None:
        self.messages.append(message)
        self.changed.set()

    def _end(self, reason: ChannelBroken | None) -> None:
        self.ends.append(reason)
        self.changed.set()


def test_messages_go_both_ways(sockets: Pair, run: Run) -> None:
    async def main() -> None:
        other, heard = ThreadEnd(sockets[1], BACK), Heard()
        end = await heard.open(sockets[0])
        for number in range(5):
            end.send(Say(number, LARGE))  # returns, although nobody listens yet
            other.send(Say(-number, LARGE))
        messages = other.messages()
        found = await asyncio.to_thread(lambda: [next(messages) for _ in range(5)])
        assert found == [Say(number, LARGE) for number in range(5)]
        await heard.until(lambda: len(heard.messages) == 5)
        assert [message.number for message in heard.messages] == [0, -1, -2, -3, -4]
        other.close()
        await heard.until(lambda: heard.ends)
        assert heard.ends == [None]

    run(main())


def test_closing_sends_what_was_said_and_tells_once(sockets: Pair, run: Run) -> None:
    async def main() -> None:
        other, heard = ThreadEnd(sockets[1], BACK), Heard()
        end = await heard.open(sockets[0])
        end.send(Say(1, LARGE))
        end.close()
        end.close()
        end.send(Say(2))
        found = await asyncio.to_thread(lambda: list(other.messages()))
        assert found == [Say(1, LARGE)]
        await heard.until(lambda: heard.ends)
        assert heard.ends == [None]
        other.close()

    run(main())


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (BACK.greeting() + b"\x01\x00\x00\x00\xc1", "cannot be read"),
        (BACK.greeting() + b"\xff\xff\xff\xff", "4,294,967,295 bytes"),
        (BACK.pack(Say(1)), "did not greet"),
        (BACK.greeting() + BACK.pack(Say(1))[:-1], "within a message"),
    ],
)
def test_what_breaks_the_channel_is_the_reason_of_its_end(
    sockets: Pair, run: Run, sent: bytes, reason: str
) -> None:
    async def main() -> None:
        heard = Heard()
        await heard.open(sockets[0])
        sockets[1].sendall(sent)
        sockets[1].shutdown(socket.SHUT_WR)
        await heard.until(lambda: heard.ends)
        [end] = heard.ends
        assert end is not None
        assert reason in str(end)
        assert heard.messages == []

    run(main())


def test_a_message_comes_whole_however_it_is_cut(sockets: Pair, run: Run) -> None:
    async def main() -> None:
        heard = Heard()
        end = await heard.open(sockets[0])
        for byte in BACK.greeting() + BACK.pack(Say(7, b"abc")):
            sockets[1].send(bytes([byte]))
            await asyncio.sleep(0)
        await heard.until(lambda: heard.messages)
        assert heard.messages == [Say(7, b"abc")]
        end.close()
        await heard.until(lambda: heard.ends)

    run(main())
