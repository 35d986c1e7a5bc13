"""An engine behind a channel, in this process."""

import socket
from collections.abc import Callable
from threading import Event
from typing import Any

import pytest
from deepinfer_core.channel.language import Language
from deepinfer_core.channel.thread_end import ThreadEnd
from deepinfer_core.engine.core import Engine, Update
from deepinfer_core.engine.grammar_masks import Grammars
from deepinfer_core.engine.request import Request
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.service.figures import series_of
from deepinfer_core.engine.service.messages import (
    FRONT_LANGUAGE,
    Abort,
    Figures,
    FiguresAsked,
    FromEngine,
    StepDone,
    Stop,
    Submit,
)
from deepinfer_core.engine.service.opening import OpenedEngine
from deepinfer_core.engine.service.requests import submit_message
from deepinfer_core.engine.service.serving import EngineService
from deepinfer_core.interfaces.async_engine import EngineFacts, GenerateRequest
from deepinfer_core.schedule.plan import StepPlan
from deepinfer_core.testing.events import captured_events
from deepinfer_core.testing.fake_runner import FakeRunner

MakeEngine = Callable[..., Engine]

WAIT_S = 10

FACTS = EngineFacts(
    model="m", tokenizer_json=None, max_model_len=64, vocabulary=265, grammar_kinds=(),
    components={}, report={},
)  # fmt: skip


class Sent:
    """What a service sent, and when something of it came."""

    def __init__(self) -> None:
        self.messages: list[FromEngine] = []
        self.ended = Event()
        self.wanted = 1

    def __call__(self, message: FromEngine) -> None:
        self.messages.append(message)
        if len(self.of("ended")) + len(self.of("failed")) >= self.wanted:
            self.ended.set()

    def of(self, kind: str) -> list[Any]:
        steps = [one for one in self.messages if isinstance(one, StepDone)]
        return [part for step in steps for part in getattr(step, kind)]

    def wait(self, ends: int) -> None:
        self.wanted = ends
        if len(self.of("ended")) + len(self.of("failed")) < ends:
            self.ended.clear()
            assert self.ended.wait(WAIT_S)


class Gate:
    """A runner whose steps wait until the gate is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = Event(), Event()
        self.runner = FakeRunner(265, 4, self._wait)

    def _wait(self, plan: StepPlan) -> None:
        self.reached.set()
        self.opened.wait(WAIT_S)


@pytest.fixture
def sent() -> Sent:
    return Sent()


def service_of(
    engine: Engine,
    send: Callable[[FromEngine], None],
    finished: Callable[[Update, str], None] = lambda update, name: None,
) -> EngineService:
    return EngineService(OpenedEngine(engine=engine, facts=FACTS, finished=finished), send)


def submit(
    number: int, max_tokens: int = 5, prompt: tuple[int, ...] = (10, 11), name: str = ""
) -> Submit:
    params = SamplingParams(max_tokens=max_tokens, seed=number, ignore_eos=True)
    request = GenerateRequest(request_id=name, prompt_token_ids=prompt, params=params)
    return submit_message(number, request)


def close(service: EngineService) -> None:
    service.obey(Stop("the test ended"))
    service.join()
    assert service.failure is None


def test_a_request_starts_once_before_its_tokens(make_engine: MakeEngine, sent: Sent) -> None:
    # Prompts longer than a step, and more requests than run at once: some are preempted.
    service = service_of(make_engine(blocks=16, sequences=3), sent)
    for number in range(1, 7):
        service.obey(submit(number, 20, tuple(range(20, 40))))
    sent.wait(6)
    close(service)
    assert sorted(row.number for row in sent.of("started")) == [1, 2, 3, 4, 5, 6]
    began: set[int] = set()
    for step in sent.messages:
        assert isinstance(step, StepDone)
        began |= {row.number for row in step.started}
        assert {one.number for one in step.grown} <= began
    assert all(row.prompt_tokens == 20 for row in sent.of("started"))


def test_what_a_step_gives_to_all_leaves_in_one_message(
    make_engine: MakeEngine, sent: Sent
) -> None:
    gate = Gate()
    service = service_of(make_engine(runner=gate.runner, asynchronous=False), sent)
    for number in (1, 2, 3, 4):
        service.obey(submit(number, 4))
    gate.opened.set()
    sent.wait(4)
    close(service)
    sizes = [len(step.grown) for step in sent.messages if isinstance(step, StepDone)]
    # The first may have run alone, before the others were queued; then all four share each step.
    assert max(sizes) == 4
    assert len(sizes) <= 2 * 4
    assert sum(sizes) == 4 * 4


def test_an_aborted_request_ends_as_such_and_others_go_on(
    make_engine: MakeEngine, sent: Sent
) -> None:
    gate = Gate()
    service = service_of(make_engine(runner=gate.runner), sent)
    service.obey(submit(1, 50))
    assert gate.reached.wait(WAIT_S)
    service.obey(submit(2, 5))
    service.obey(Abort(1, "operator"))
    service.obey(Abort(1, "client"))  # whoever came first
    service.obey(Abort(99, "client"))  # one that is not there, or not any more
    gate.opened.set()
    sent.wait(2)
    close(service)
    ends = {one.number: (one.reason, one.aborted_by) for one in sent.of("ended")}
    assert ends == {1: ("abort", "operator"), 2: ("length", None)}


def test_a_request_that_ends_before_a_second_step_started_once(
    make_engine: MakeEngine, sent: Sent
) -> None:
    gate = Gate()
    service = service_of(make_engine(runner=gate.runner), sent)
    service.obey(submit(1, 50))
    assert gate.reached.wait(WAIT_S)
    service.obey(Abort(1, "client"))
    gate.opened.set()
    sent.wait(1)
    close(service)
    assert [row.number for row in sent.of("started")] == [1]


def test_a_bad_request_fails_alone(make_engine: MakeEngine, sent: Sent) -> None:
    service = service_of(make_engine(), sent)
    service.obey(Submit(1, b"", {"max_tokens": 0}, "", 0, None))
    service.obey(submit(2, prompt=(999,)))
    service.obey(submit(3))
    sent.wait(3)
    close(service)
    assert {one.number: one.fault.code for one in sent.of("failed")} == {
        1: "request_error",
        2: "request_error",
    }
    assert [one.number for one in sent.of("ended")] == [3]


def test_a_request_that_nobody_foresaw_fails_alone_and_the_cause_is_logged(
    make_engine: MakeEngine, sent: Sent
) -> None:
    service = service_of(make_engine(), sent)
    service.obey(submit(1, 20))
    with captured_events() as logs:
        service.obey(Submit(2, b"", {"no_such_field": 1}, "", 0, None))
    service.obey(submit(3))
    sent.wait(3)
    close(service)
    [failed] = sent.of("failed")
    assert (failed.number, failed.fault.code) == (2, "engine_error")
    assert "no_such_field" in failed.fault.message
    assert {one.number: one.reason for one in sent.of("ended")} == {1: "length", 3: "length"}
    [event] = logs
    assert (event["event"], event["kind"]) == ("message.failed", "Submit")
    assert "TypeError" in event["exception"]


class Broken(Grammars):
    """Grammars of a component that raises when it is asked for one."""

    def constraint(self, request: Request) -> None:
        if request.params.grammar_request is not None:
            raise RuntimeError("of the component")


def test_a_request_whose_component_raises_fails_alone_and_the_cause_is_logged(
    make_engine: MakeEngine, sent: Sent
) -> None:
    engine = make_engine()
    engine.grammars = Broken()
    service = service_of(engine, sent)
    params = SamplingParams(max_tokens=5, grammar={"kind": "choice", "grammar": ["a"]})
    bad = GenerateRequest(request_id="bad", prompt_token_ids=(10,), params=params)
    with captured_events() as logs:
        service.obey(submit(1, 20))
        service.obey(submit_message(2, bad))
        service.obey(submit(3))
        sent.wait(3)
    close(service)
    [failed] = sent.of("failed")
    assert (failed.number, failed.fault.code) == (2, "engine_error")
    assert "RuntimeError: of the component" in failed.fault.message
    assert {one.number: one.reason for one in sent.of("ended")} == {1: "length", 3: "length"}
    [cause] = [one["exception"] for one in logs if one["event"] == "request.not_queued"]
    assert "RuntimeError: of the component" in cause


def test_requests_of_a_step_that_failed_are_told(make_engine: MakeEngine, sent: Sent) -> None:
    def fail(plan: StepPlan) -> None:
        raise ValueError("no")

    service = service_of(make_engine(runner=FakeRunner(265, 4, fail)), sent)
    service.obey(submit(1))
    sent.wait(1)
    close(service)
    [failed] = sent.of("failed")
    assert (failed.number, failed.fault.code) == (1, "engine_error")
    assert "ValueError: no" in failed.fault.message


def test_stopping_tells_what_runs_the_reason(make_engine: MakeEngine, sent: Sent) -> None:
    gate = Gate()
    service = service_of(make_engine(runner=gate.runner), sent)
    service.obey(submit(1, 50))
    assert gate.reached.wait(WAIT_S)
    service.obey(submit(2))
    service.obey(Stop("it is late"))
    service.obey(submit(3))  # behind the end
    gate.opened.set()
    service.join()
    assert sorted(one.number for one in sent.of("failed")) == [1, 2, 3]
    assert "it is late" in sent.of("failed")[0].fault.message


def test_what_was_counted_is_answered_under_its_number(make_engine: MakeEngine, sent: Sent) -> None:
    engine = make_engine()
    service = service_of(engine, sent)
    service.obey(submit(1))
    close(service)
    service.obey(FiguresAsked(7))
    [answer] = [one for one in sent.messages if isinstance(one, Figures)]
    assert answer.number == 7
    values = {(one.name, one.labels): one.value for one in answer.figures}
    assert values["requests_total", ()] == 1
    assert series_of(answer.figures) == engine.instruments.board.read()


def test_who_observes_learns_the_names_that_the_front_gave(
    make_engine: MakeEngine, sent: Sent
) -> None:
    """So the engine's log can be read beside the server's."""
    named: dict[int, str] = {}

    def finished(update: Update, name: str) -> None:
        named[update.delta.index] = name

    service = service_of(make_engine(), sent, finished)
    for number in (1, 2, 3):
        service.obey(submit(number, 2 * number, name=f"req-{number}"))
    sent.wait(3)
    close(service)
    assert named == {1: "req-1", 2: "req-2", 3: "req-3"}


def test_steps_do_not_wait_for_a_front_that_does_not_listen(make_engine: MakeEngine) -> None:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    ended: list[Update] = []
    all_ended = Event()

    def finished(update: Update, name: str) -> None:
        ended.append(update)
        if len(ended) == 40:
            all_ended.set()

    language: Language[Any, Any] = FRONT_LANGUAGE.reversed()
    end = ThreadEnd(ours, language)
    service = service_of(make_engine(longest=512, blocks=256), end.send, finished)
    for number in range(1, 41):
        service.obey(submit(number, 100))
    # Nobody has read a byte, the socket is full, and every request came to its end.
    assert all_ended.wait(WAIT_S)
    assert end.backlog_bytes > 0
    with ThreadEndOf(theirs) as front:
        tokens = 0
        for step in front.messages():
            tokens += sum(len(one.token_ids) for one in step.grown)
            if tokens == 40 * 100:
                break
    close(service)
    end.close()


class ThreadEndOf:
    """The front's end, closed at the end."""

    def __init__(self, connection: socket.socket) -> None:
        self._end: ThreadEnd[Any, Any] = ThreadEnd(connection, FRONT_LANGUAGE)

    def __enter__(self) -> ThreadEnd[Any, Any]:
        return self._end

    def __exit__(self, *exception: object) -> None:
        self._end.close()
