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


def test_memory_is_given_back_behind_large_work_however_it_ends(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back: list[int] = []
    monkeypatch.setattr(module, "_give_back", given_back.append)

    def fail() -> None:
        assert not given_back
        raise ValueError

    async def body() -> None:
        async with opened() as threads:
            assert await threads.run(lambda: 1) == 1
            assert given_back == []
            with pytest.raises(ValueError):  # noqa: PT011 - the one that is raised above
                await asyncio.create_task(as_large(threads, fail))
            assert given_back == [0]

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
