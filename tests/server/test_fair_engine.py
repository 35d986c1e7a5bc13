"""Whose request is next?"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import DeepInferError, EngineBusy, EngineUnavailable, RequestError
from deepinfer_core.interfaces.async_engine import Finished, GenerateRequest, Item
from deepinfer_core.server.callers import CALLER
from deepinfer_core.server.fair_engine import FairEngine
from deepinfer_core.testing.fake_async_engine import FakeAsyncEngine
from deepinfer_core.testing.served import until
from hypothesis import given, settings
from hypothesis import strategies as st


def fair(engine: FakeAsyncEngine, places: int = 2, most: int = 100) -> FairEngine:
    return FairEngine(engine, places=places, max_in_work=most, queue_timeout_s=20)


def ask(name: str, user: str = "") -> GenerateRequest:
    return GenerateRequest(
        request_id=name,
        prompt_token_ids=(65, 66),
        params=SamplingParams(max_tokens=4),
        cache_salt=user,
    )


def start(engine: FairEngine, caller: str, request: GenerateRequest) -> asyncio.Task[list[Item]]:
    async def answer() -> list[Item]:
        CALLER.set(caller)
        return [item async for item in engine.generate(request)]

    return asyncio.create_task(answer())


class Recording(FakeAsyncEngine):
    """Notes who is in the engine, and the order of those that come."""

    def __init__(self) -> None:
        super().__init__(lambda request: "ab")
        self.inside: Counter[str] = Counter()
        self.order: list[str] = []
        self.most = 0

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Item]:
        caller = request.request_id[0]
        self.inside[caller] += 1
        self.order.append(request.request_id)
        self.most = max(self.most, self.inside.total())
        try:
            async for item in super().generate(request):
                yield item
        finally:
            self.inside[caller] -= 1


def test_a_caller_with_one_request_waits_for_one_end_however_many_others_sent(run: Any) -> None:
    async def body() -> list[str]:
        engine = Recording()
        engine.pause()
        shared = fair(engine)
        tasks = [start(shared, "a", ask(f"a{number}")) for number in range(20)]
        await until(lambda: len(engine.order) == 2)
        tasks.append(start(shared, "b", ask("b0")))
        await asyncio.sleep(0)
        engine.resume()
        await asyncio.gather(*tasks)
        return engine.order

    assert run(body)[:3] == ["a0", "a1", "b0"]


def test_users_of_one_caller_take_turns_too(run: Any) -> None:
    async def body() -> list[str]:
        engine = Recording()
        engine.pause()
        shared = fair(engine)
        tasks = [start(shared, "a", ask(f"a{number}", "x")) for number in range(5)]
        await until(lambda: len(engine.order) == 2)
        tasks.append(start(shared, "a", ask("a-y", "y")))
        await asyncio.sleep(0)
        engine.resume()
        await asyncio.gather(*tasks)
        return engine.order

    assert run(body)[2] == "a-y"


@settings(max_examples=50, deadline=None)
@given(
    callers=st.lists(st.sampled_from("abc"), min_size=1, max_size=24),
    places=st.integers(1, 3),
)
def test_the_nth_request_of_a_caller_waits_for_n_of_each_other_caller(
    callers: list[str], places: int
) -> None:
    async def body() -> None:
        engine = Recording()
        engine.pause()
        shared = fair(engine, places)
        asked = [f"{caller}{number}" for number, caller in enumerate(callers)]
        tasks = [start(shared, name[0], ask(name)) for name in asked]
        await asyncio.sleep(0)
        engine.resume()
        await asyncio.gather(*tasks)
        assert sorted(engine.order) == sorted(asked)
        assert engine.most <= places
        # All are equally long. Those that had their places first may have filled the engine, and
        # once more before shares are even; from then on callers take turns.
        for caller in set(callers):
            own = [turn for turn, name in enumerate(engine.order) if name[0] == caller]
            for number, turn in enumerate(own):
                assert turn <= 2 * places + len(set(callers)) * (number + 1)

    asyncio.run(body())


@settings(max_examples=50, deadline=None)
@given(
    fates=st.lists(st.sampled_from(["stay", "cancel", "abort"]), max_size=16),
    places=st.integers(1, 4),
    moments=st.lists(st.integers(0, 6), min_size=16, max_size=16),
)
def test_whoever_leaves_at_any_moment_leaves_a_place_and_nothing_else(
    fates: list[str], places: int, moments: list[int]
) -> None:
    async def leave(shared: FairEngine, task: Any, name: str, fate: str, moment: int) -> None:
        for _ in range(moment):
            await asyncio.sleep(0)
        if fate == "cancel":
            task.cancel()
        elif fate == "abort":
            shared.abort(name)

    async def body() -> None:
        engine = Recording()
        shared = fair(engine, places)
        tasks = [start(shared, "", ask(f"a{number}")) for number in range(len(fates))]
        await asyncio.gather(
            *[
                leave(shared, task, f"a{number}", fates[number], moments[number])
                for number, task in enumerate(tasks)
            ]
        )
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for fate, result in zip(fates, results, strict=True):
            if fate == "cancel" and isinstance(result, asyncio.CancelledError):
                continue
            assert isinstance(result, list)
            assert isinstance(result[-1], Finished)
            assert result[-1].reason in ({"stay": ["stop"]}.get(fate, ["stop", "abort"]))
        assert engine.most <= places
        assert (shared.in_work, shared.waiting, engine.in_work) == (0, 0, 0)
        assert await start(shared, "", ask("last"))

    asyncio.run(body())


def test_more_than_may_be_in_work_are_refused(run: Any) -> None:
    async def body() -> None:
        engine = FakeAsyncEngine()
        engine.pause()
        shared = fair(engine, places=1, most=2)
        tasks = [start(shared, "", ask(name)) for name in "ab"]
        await asyncio.sleep(0)
        assert (shared.in_work, shared.waiting) == (2, 1)
        with pytest.raises(EngineBusy):
            await start(shared, "", ask("c"))
        engine.resume()
        await asyncio.gather(*tasks)

    run(body)


def test_one_id_is_in_work_once(run: Any) -> None:
    async def body() -> None:
        engine = FakeAsyncEngine()
        engine.pause()
        shared = fair(engine)
        task = start(shared, "", ask("a"))
        await asyncio.sleep(0)
        with pytest.raises(RequestError, match="a request a is in work"):
            await start(shared, "", ask("a"))
        engine.resume()
        await task

    run(body)


@pytest.mark.parametrize("waits", [False, True])
def test_nobody_but_its_caller_ends_a_request(run: Any, waits: bool) -> None:
    async def body() -> None:
        engine = FakeAsyncEngine()
        engine.pause()
        shared = fair(engine, places=0 if waits else 1)
        task = start(shared, "alice", ask("a"))
        await asyncio.sleep(0.01)
        CALLER.set("bob")
        assert not shared.abort("a")
        CALLER.set("alice")
        assert shared.abort("a")
        [*_, end] = await task
        assert isinstance(end, Finished)
        assert (end.reason, end.aborted_by) == ("abort", "operator")
        assert not shared.abort("a")

    run(body)


@pytest.mark.parametrize("state", ["loading", "draining", "dead"])
def test_an_engine_that_takes_nothing_is_not_waited_for(run: Any, state: Any) -> None:
    async def body() -> None:
        engine = FakeAsyncEngine()
        engine.become(state)
        with pytest.raises(EngineUnavailable):
            await start(fair(engine), "", ask("a"))

    run(body)


def test_a_timeout_of_the_engine_is_not_taken_for_a_late_start(run: Any) -> None:
    class Slow(FakeAsyncEngine):
        async def generate(self, request: GenerateRequest) -> AsyncIterator[Item]:
            raise TimeoutError("of its own")
            yield

    async def body() -> None:
        with pytest.raises(TimeoutError, match="of its own"):
            await start(fair(Slow()), "", ask("a"))

    run(body)


def test_draining_lets_those_end_that_wait_and_takes_nobody_else(run: Any) -> None:
    async def body() -> None:
        engine = FakeAsyncEngine()
        shared = fair(engine, places=1)
        tasks = [start(shared, "", ask(name)) for name in "abc"]
        await asyncio.sleep(0)
        drained = asyncio.create_task(shared.drain(10))
        await asyncio.sleep(0)
        assert shared.state == "draining"
        with pytest.raises(EngineUnavailable):
            await start(shared, "", ask("d"))
        assert await drained
        assert {type((await task)[-1]) for task in tasks} == {Finished}

    run(body)


def test_what_does_not_end_while_draining_gets_an_end_or_an_error(run: Any) -> None:
    async def body() -> None:
        engine = FakeAsyncEngine()
        engine.pause()
        shared = fair(engine, places=1)
        tasks = [start(shared, "", ask(name)) for name in "ab"]
        await asyncio.sleep(0.01)
        assert not await shared.drain(0.05)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(results[0], list)
        assert isinstance(results[1], DeepInferError)
        assert "the server stops" in results[1].message
        assert shared.in_work == 0

    run(body)


def test_closing_refuses_what_waits(run: Any) -> None:
    async def body() -> None:
        engine = FakeAsyncEngine()
        engine.pause()
        shared = fair(engine, places=1)
        tasks = [start(shared, "", ask(name)) for name in "ab"]
        await asyncio.sleep(0.01)
        await shared.close()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, DeepInferError) for one in results)

    run(body)


def test_requests_that_name_no_class_of_traffic_get_that_of_their_caller(run: Any) -> None:
    async def body() -> list[str | None]:
        engine = FakeAsyncEngine(lambda request: seen.append(request.retention) or "ab")
        shared = FairEngine(
            engine,
            places=2,
            max_in_work=9,
            queue_timeout_s=20,
            retention_of={"a": "chat"}.get,
        )
        seen: list[str | None] = []
        named = replace(ask("3"), retention="yearly")
        for caller, request in (("a", ask("1")), ("b", ask("2")), ("a", named)):
            await start(shared, caller, request)
        return seen

    assert run(body) == ["chat", None, "yearly"]
