"""Work that would hold up the event loop: who waits for whom?"""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from deepinfer_core.interfaces.protocol import Endpoint, HttpAnswer, HttpCall, JsonAnswer
from deepinfer_core.server import threads as module
from deepinfer_core.server.dialect import OPENAI
from deepinfer_core.server.threads import IS_LARGE, LARGE_BODY_BYTES, Threads
from deepinfer_core.testing.served import until


@asynccontextmanager
async def opened() -> AsyncIterator[Threads]:
    threads = Threads(2)
    try:
        yield threads
    finally:
        threads.close()


async def as_large(threads: Threads, function: Any) -> Any:
    IS_LARGE.set(True)
    return await threads.run(function)


def test_large_work_is_done_one_at_a_time_and_small_work_does_not_wait_for_it(run: Any) -> None:
    async def body() -> None:
        may_end, begun = threading.Event(), []

        def work() -> int:
            begun.append(threading.get_ident())
            may_end.wait(20)
            return len(begun)

        async with opened() as threads:
            large = [asyncio.create_task(as_large(threads, work)) for _ in range(3)]
            for _ in range(3):
                assert await threads.run(lambda: "small") == "small"
            assert len(begun) == 1
            may_end.set()
            assert await asyncio.gather(*large) == [1, 2, 3]
            assert len(set(begun)) == 1

    run(body)


def test_memory_is_given_back_once_for_all_that_was_let_go_of_meanwhile(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back: list[int] = []
    monkeypatch.setattr(module, "_give_back", given_back.append)
    monkeypatch.setattr(module, "_GIVE_BACK_S", 0.01)

    async def body() -> None:
        complaints: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, complaint: complaints.append(complaint))
        async with opened() as threads:
            for times in (1, 2):
                threads.give_back_soon()
                threads.give_back_soon()
                await until(lambda times=times: len(given_back) == times)
            threads.give_back_soon()
        await asyncio.sleep(0.05)
        assert given_back == [0, 0]  # nothing is begun any more behind the end
        assert complaints == []

    run(body)


@pytest.mark.parametrize(("more", "times"), [(-1, 0), (0, 1)])
@pytest.mark.parametrize("text", [b'{"a":"%b"}', b'{"a":"%b",'])
def test_memory_of_large_bodies_is_given_back_whatever_becomes_of_them(
    run: Any, serve: Any, monkeypatch: pytest.MonkeyPatch, more: int, times: int, text: bytes
) -> None:
    given_back: list[int] = []
    monkeypatch.setattr(module, "_give_back", given_back.append)
    monkeypatch.setattr(module, "_GIVE_BACK_S", 0.01)

    async def body() -> None:
        async with serve() as client:
            length = LARGE_BODY_BYTES + more - len(text % b"")
            headers = {"content-type": "application/json"}
            answer = await client.post("/say", content=text % (b"x" * length), headers=headers)
            assert answer.status_code == (200 if text.endswith(b"}") else 400)
            if times:
                await until(lambda: len(given_back) == times)
            await asyncio.sleep(0.05)
            assert len(given_back) == times

    run(body)


@pytest.mark.parametrize(("more", "is_large"), [(-1, False), (0, True), (1, True)])
def test_a_call_is_large_by_its_body(run: Any, serve: Any, more: int, is_large: bool) -> None:
    async def handle(call: HttpCall) -> HttpAnswer:
        return JsonAnswer(content=b"true" if IS_LARGE.get() else b"false")

    endpoint = Endpoint(method="POST", path="/x", handle=handle, dialect=OPENAI)

    async def body() -> None:
        async with serve(None, lambda service: [endpoint]) as client:
            framed = b'{"a":"%b"}'
            length = LARGE_BODY_BYTES + more - len(framed % b"")
            headers = {"content-type": "application/json"}
            for _ in range(2):
                answer = await client.post("/x", content=framed % (b"x" * length), headers=headers)
                assert answer.json() is is_large
                assert (await client.post("/x", json={})).json() is False

    run(body)
