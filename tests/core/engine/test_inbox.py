"""What a slow consumer finds when it comes back."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from deepinfer_core.engine.inbox import Inbox
from deepinfer_core.engine.outputs import Completion, Delta, TokenLogprob
from deepinfer_core.engine.results import refusal
from deepinfer_core.engine.waiters import Waiter, wake
from deepinfer_core.errors import EngineError, RequestError

RunAsync = Callable[[Callable[[], Any]], Any]


class Opened:
    """An inbox, and what it tells."""

    def __init__(self, samples: int = 1) -> None:
        self.freed: list[int] = []
        self.woken: list[Waiter] = []
        self.inbox = Inbox(samples, self.freed.append, self.woken.append)


def delta(number: int, *, sample: int = 0, completion: Completion | None = None) -> Delta:
    logprob = TokenLogprob(token_id=number, logprob=-1.0, processed_logprob=-1.0)
    return Delta(
        index=7,
        text=f"{number} ",
        token_ids=(number,),
        logprobs=(logprob,),
        completion=completion,
        sample=sample,
    )


def completion(sample: int = 0) -> Completion:
    return refusal(7, 1, RequestError("no"), load_s=0.0, sample=sample)


@pytest.mark.parametrize("count", [1, 2, 50])
def test_deltas_that_were_not_taken_become_one(count: int) -> None:
    inbox = Opened().inbox
    for number in range(count):
        inbox.receive(delta(number))
    found = inbox.take()
    assert found is not None
    assert found.token_ids == tuple(range(count))
    assert found.text == "".join(f"{number} " for number in range(count))
    assert [entry.token_id for entry in found.logprobs] == list(range(count))
    assert (found.index, found.sample, found.completion) == (7, 0, None)
    assert inbox.take() is None


def test_the_last_delta_brings_the_completion_wherever_it_was_joined() -> None:
    inbox, done = Opened().inbox, completion()
    inbox.receive(delta(1))
    inbox.receive(delta(2, completion=done))
    found = inbox.take()
    assert found is not None
    assert found.completion is done
    assert inbox.has_ended


def test_answers_are_not_mixed_and_come_in_the_order_of_their_first_delta() -> None:
    inbox = Opened(2).inbox
    for number, sample in [(1, 1), (2, 0), (3, 1)]:
        inbox.receive(delta(number, sample=sample))
    found = [inbox.take(), inbox.take()]
    assert [(one.sample, one.token_ids) for one in found if one] == [(1, (1, 3)), (0, (2,))]


def test_it_ends_with_the_last_of_its_answers() -> None:
    opened = Opened(2)
    opened.inbox.receive(delta(1, sample=1, completion=completion(1)))
    assert not opened.inbox.has_ended
    opened.inbox.receive(delta(1, sample=0, completion=completion(0)))
    assert opened.inbox.has_ended
    assert [done.sample for done in opened.inbox.completions()] == [0, 1]
    assert opened.freed == [1, 1]


def test_a_failure_comes_behind_what_came_before_it_and_again_each_time() -> None:
    opened = Opened(3)
    opened.inbox.receive(delta(1, completion=completion()))
    opened.inbox.drop(EngineError("broken", hint="mend it"))
    opened.inbox.drop(EngineError("broken twice"))
    opened.inbox.receive(delta(2, sample=1, completion=completion(1)))
    assert opened.inbox.take() is not None
    raised = []
    for _ in range(2):
        with pytest.raises(EngineError, match=r"broken \(mend it\)") as caught:
            opened.inbox.take()
        raised.append(caught.value)
    assert raised[0] is not raised[1]
    with pytest.raises(EngineError, match="broken"):
        opened.inbox.completions()
    # Each of the three places came free once.
    assert sum(opened.freed) == 3


def test_who_waits_for_the_end_sleeps_through_the_deltas(run_async: RunAsync) -> None:
    async def main() -> None:
        opened = Opened()
        tasks = [
            asyncio.create_task(opened.inbox.changed(until_end=until_end))
            for until_end in (False, True)
        ]
        await asyncio.sleep(0)
        opened.inbox.receive(delta(1))
        wake(opened.woken)
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert [task.done() for task in tasks] == [True, False]
        opened.woken.clear()
        opened.inbox.receive(delta(1, completion=completion()))
        wake(opened.woken)
        await tasks[1]

    run_async(main)


def test_nobody_sleeps_when_there_is_something_to_take(run_async: RunAsync) -> None:
    async def main() -> None:
        opened = Opened()
        opened.inbox.receive(delta(1, completion=completion()))
        await opened.inbox.changed(until_end=False)
        await opened.inbox.changed(until_end=True)

    run_async(main)


def test_one_who_is_cancelled_is_not_woken_any_more(run_async: RunAsync) -> None:
    async def main() -> None:
        opened = Opened()
        task = asyncio.create_task(opened.inbox.changed(until_end=False))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        opened.inbox.receive(delta(1))
        assert opened.woken == []

    run_async(main)
