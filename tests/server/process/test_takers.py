"""Which tokens does a taker get, and which are left to the iterator?"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.service.messages import Ended, Grown, StartedRow, StepDone
from deepinfer_core.interfaces.async_engine import (
    Finished,
    GenerateRequest,
    Item,
    Started,
    Taker,
    Tokens,
)
from deepinfer_core.server.live_request import LiveRequest
from deepinfer_core.server.live_requests import LiveRequests
from deepinfer_core.testing.fake_service import FakeService


def asked(name: str, taker: Taker | None = None) -> GenerateRequest:
    params = SamplingParams(max_tokens=40, seed=1, ignore_eos=True)
    return GenerateRequest(
        request_id=name, prompt_token_ids=(20, 21, 22), params=params, taker=taker
    )


async def taken(live: LiveRequest) -> Item | None:
    """The next item, as whoever answers a request waits for it; None: there is none."""
    while (item := live.take()) is None and not live.is_over:
        await live.changed()
    return item


def grown(live: LiveRequest, *token_ids: int) -> StepDone:
    return StepDone([], [Grown(live.number, token_ids, "")], [], [])


def ended(live: LiveRequest) -> StepDone:
    return StepDone([], [], [Ended(live.number, "length", 3, 0, 2, 0, 0, 0.0, None)], [])


def run_soon(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run; what is not woken, although it should be, fails."""
    asyncio.run(asyncio.wait_for(main(), 10))


class Requests(LiveRequests):
    """As the front of an engine's process keeps them."""

    def __init__(self) -> None:
        super().__init__(8)

    def one(self, taker: Taker | None = None) -> LiveRequest:
        live = self.new(asked(str(len(self)), taker))
        self.add(live)
        return live


def test_it_gets_what_comes_while_somebody_waits_and_nobody_is_woken() -> None:
    async def main() -> None:
        got: list[tuple[int, ...]] = []
        requests = Requests()
        live = requests.one(lambda token_ids, *_: got.append(token_ids) is None)
        waiting = asyncio.create_task(taken(live))
        await asyncio.sleep(0)
        for token in (1, 2, 3):
            requests.heard(grown(live, token))
            await asyncio.sleep(0)
        assert got == [(1,), (2,), (3,)]
        assert not waiting.done()
        requests.heard(ended(live))
        assert isinstance(await waiting, Finished)

    run_soon(main)


def test_it_gets_nothing_that_would_overtake_what_was_not_taken_yet() -> None:
    async def main() -> None:
        got: list[tuple[int, ...]] = []
        requests = Requests()
        live = requests.one(lambda token_ids, *_: got.append(token_ids) is None)
        requests.heard(StepDone([StartedRow(live.number, 3, 0)], [], [], []))
        requests.heard(grown(live, 1))
        assert await taken(live) == Started(3, 0)
        requests.heard(grown(live, 2))  # nobody waits, as the first one is still there
        assert await taken(live) == Tokens((1, 2))
        waiting = asyncio.create_task(taken(live))
        await asyncio.sleep(0)
        requests.heard(StepDone([], [], [], []))
        requests.heard(grown(live, 3))
        requests.heard(grown(live, 4))
        assert got == [(3,), (4,)]
        requests.heard(ended(live))
        await waiting

    run_soon(main)


def test_what_it_leaves_comes_from_the_iterator_with_all_that_follows() -> None:
    async def main() -> None:
        got: list[tuple[int, ...]] = []

        def one_only(token_ids: tuple[int, ...], *_: Any) -> bool:
            got.append(token_ids)
            return len(got) == 1

        requests = Requests()
        live = requests.one(one_only)
        waiting = asyncio.create_task(taken(live))
        await asyncio.sleep(0)
        for token in (1, 2, 3):  # the task is woken by the second, and the third comes before it
            requests.heard(grown(live, token))
        assert await waiting == Tokens((2, 3))
        assert got == [(1,), (2,)]

    run_soon(main)


def test_what_it_raises_fails_its_request_alone() -> None:
    async def main() -> None:
        def broken(*_: Any) -> bool:
            raise KeyError("of the taker")

        requests = Requests()
        bad, good = requests.one(broken), requests.one(lambda *_: False)
        tasks = [asyncio.create_task(taken(live)) for live in (bad, good)]
        await asyncio.sleep(0)
        both = [Grown(live.number, (7,), "") for live in (bad, good)]
        requests.heard(StepDone([], both, [], []))
        with pytest.raises(KeyError, match="of the taker"):
            await tasks[0]
        assert await tasks[1] == Tokens((7,))
        requests.heard(ended(bad))  # what comes of it later changes nothing
        with pytest.raises(KeyError, match="of the taker"):
            bad.take()

    run_soon(main)


def test_taker_and_iterator_of_an_engine_give_every_token_once(
    open_process: Any, run_async: Any
) -> None:
    async def main() -> None:
        async with open_process(FakeService(step_s=0.001)) as engine:
            plain = asked("a")
            wanted = [
                token
                async for item in engine.generate(plain)
                if isinstance(item, Tokens)
                for token in item.token_ids
            ]
            found: list[int] = []
            offers = 0

            def every_other(token_ids: tuple[int, ...], *_: Any) -> bool:
                nonlocal offers
                offers += 1
                if offers % 2:
                    found.extend(token_ids)
                return offers % 2 == 1

            async for item in engine.generate(replace(plain, request_id="b", taker=every_other)):
                if isinstance(item, Tokens):
                    found.extend(item.token_ids)
            assert found == wanted
            assert offers > 10

    run_async(main)
