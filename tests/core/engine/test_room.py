"""Places for answers, and who gets them."""

import asyncio
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
from deepinfer_core.engine.room import Room
from deepinfer_core.engine.waiters import wake
from deepinfer_core.errors import EngineBusy, RequestError

RunAsync = Callable[[Callable[[], Any]], Any]


async def settle() -> None:
    """Let every task come to where it waits."""
    for _ in range(5):
        await asyncio.sleep(0)


def give_back(room: Room, count: int) -> None:
    wake(room.give_back(count))


@pytest.mark.parametrize("places", [1, 2, 3])
def test_as_many_get_in_as_there_are_places(run_async: RunAsync, places: int) -> None:
    async def main() -> None:
        room = Room(places)
        for _ in range(places):
            await room.take(1, wait=False)
        with pytest.raises(EngineBusy, match=f"{places} answers are in work, of {places}") as full:
            await room.take(1, wait=False)
        assert full.value.code == "engine_busy"
        assert "max_queued" in full.value.hint
        give_back(room, 1)
        await room.take(1, wait=False)
        assert room.used == places

    run_async(main)


def test_who_waits_gets_in_first_come_first_served(run_async: RunAsync) -> None:
    async def main() -> None:
        room, order = Room(3), []

        async def seek(name: str, count: int) -> None:
            await room.take(count)
            order.append(name)

        await room.take(3)
        tasks = [asyncio.create_task(seek("large", 3)), asyncio.create_task(seek("small", 1))]
        await settle()
        give_back(room, 2)
        await settle()
        assert order == []  # the small one would fit, and does not overtake
        with pytest.raises(EngineBusy):
            await room.take(1, wait=False)
        give_back(room, 1)
        await settle()
        assert order == ["large"]
        give_back(room, 3)
        await asyncio.gather(*tasks)
        assert (order, room.used) == (["large", "small"], 1)

    run_async(main)


def test_who_is_cancelled_lets_the_next_one_in(run_async: RunAsync) -> None:
    async def main() -> None:
        room = Room(2)
        await room.take(1)
        large, small = asyncio.create_task(room.take(2)), asyncio.create_task(room.take(1))
        await settle()
        large.cancel()
        await small
        assert large.cancelled()
        assert room.used == 2

    run_async(main)


def test_a_place_given_to_one_who_was_cancelled_is_not_lost(run_async: RunAsync) -> None:
    async def main() -> None:
        room = Room(1)
        await room.take(1)
        first, second = asyncio.create_task(room.take(1)), asyncio.create_task(room.take(1))
        await settle()
        give_back(room, 1)  # the first one has it, and does not know yet
        first.cancel()
        await second
        give_back(room, 1)
        assert (first.cancelled(), room.used) == (True, 0)

    run_async(main)


def test_more_than_all_places_are_refused_at_once(run_async: RunAsync) -> None:
    async def main() -> None:
        with pytest.raises(RequestError, match="n is 3, and at most 2 answers"):
            await Room(2).take(3)
        await Room(2).take(2)

    run_async(main)


def test_a_place_is_given_to_a_task_of_another_loop(run_async: RunAsync) -> None:
    room = Room(1)

    async def main() -> None:
        await room.take(1)
        other = Thread(target=lambda: asyncio.run(room.take(1)))
        other.start()
        while not room._seekers:  # noqa: ASYNC110 - another thread's task, which tells nobody
            await asyncio.sleep(0.001)
        give_back(room, 1)
        await asyncio.to_thread(other.join, 10)
        assert not other.is_alive()
        assert room.used == 1

    run_async(main)


def test_nobody_is_woken_in_a_loop_that_was_closed() -> None:
    room = Room(1)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(room.take(1))
    left = room.take(1)
    task = loop.create_task(left)
    loop.run_until_complete(asyncio.sleep(0))
    task._log_destroy_pending = False  # leaving it behind is the point of this test
    loop.close()
    give_back(room, 1)
    left.close()
    assert room.used == 0
