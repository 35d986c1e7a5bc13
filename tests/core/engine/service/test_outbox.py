"""What a step gave leaves in one message."""

from collections.abc import Callable

import pytest
from deepinfer_core.channel.language import MessageTooLarge
from deepinfer_core.engine.outputs import Completion, Delta, Timings, Usage
from deepinfer_core.engine.service.messages import StepDone
from deepinfer_core.engine.service.outbox import Outbox
from deepinfer_core.errors import EngineError, RequestError


def completion(number: int, **changes: object) -> Completion:
    values: dict[str, object] = {
        "index": number,
        "text": "ab",
        "token_ids": (1, 2),
        "finish_reason": "stop",
        "logprobs": None,
        "prompt_logprobs": None,
        "usage": Usage(prompt_tokens=3, completion_tokens=2, cached_tokens=1),
        "timings_s": Timings(load=0, first_token=None, total=0),
        "seed": 1,
    }
    return Completion(**{**values, **changes})  # type: ignore[arg-type]


@pytest.fixture
def sent() -> list[StepDone]:
    return []


@pytest.fixture
def left() -> list[int]:
    return []


@pytest.fixture
def outbox(sent: list[StepDone], left: list[int]) -> Outbox:
    return Outbox(sent.append, left.append, {}.get)


def limited(
    sent: list[StepDone], left: list[int], is_too_large: Callable[[StepDone], bool]
) -> Outbox:
    def send(step: StepDone) -> None:
        if is_too_large(step):
            raise MessageTooLarge("too large")
        sent.append(step)

    return Outbox(send, left.append, {}.get)


def test_nothing_is_sent_where_nothing_happened(outbox: Outbox, sent: list[StepDone]) -> None:
    outbox.receive(Delta(1))
    assert not outbox.flush()
    assert sent == []


def test_all_that_happened_is_sent_at_once_and_then_forgotten(
    outbox: Outbox, sent: list[StepDone], left: list[int]
) -> None:
    outbox.receive(Delta(1, "a", (5,)))
    outbox.receive(Delta(2, "b", (6, 7), completion=completion(2)))
    outbox.receive(Delta(3, completion=completion(3, error=RequestError("no"))))
    outbox.fail(4, EngineError("died"))
    assert outbox.flush()
    [step] = sent
    assert [(one.number, one.token_ids, one.text) for one in step.grown] == [
        (1, (5,), "a"),
        (2, (6, 7), "b"),
    ]
    [ended] = step.ended
    assert (ended.number, ended.reason, ended.prompt_tokens, ended.cached_tokens) == (
        2,
        "stop",
        3,
        1,
    )
    assert [(one.number, one.fault.code) for one in step.failed] == [
        (3, "request_error"),
        (4, "engine_error"),
    ]
    assert left == [2, 3, 4]
    assert not outbox.flush()


def test_a_step_that_is_too_large_is_sent_in_parts(sent: list[StepDone], left: list[int]) -> None:
    outbox = limited(sent, left, lambda step: len(step.grown) + len(step.ended) > 1)
    for number in (1, 2):
        outbox.receive(Delta(number, "a", (number,), completion=completion(number)))
    assert outbox.flush()
    assert [one.number for step in sent for one in step.grown] == [1, 2]
    assert [one.number for step in sent for one in step.ended] == [1, 2]


def test_a_request_whose_part_is_too_large_fails_and_the_others_do_not(
    sent: list[StepDone], left: list[int]
) -> None:
    outbox = limited(
        sent, left, lambda step: len(step.ended) > 1 or any(one.number == 1 for one in step.ended)
    )
    for number in (1, 2):
        outbox.receive(Delta(number, completion=completion(number)))
    assert outbox.flush()
    [failed] = [one for step in sent for one in step.failed]
    assert (failed.number, failed.fault.code) == (1, "engine_error")
    assert [one.number for step in sent for one in step.ended] == [2]
