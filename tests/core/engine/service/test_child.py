"""The engine's process by itself, without the one that is usually in front of it."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from deepinfer_core.channel.thread_end import ThreadEnd
from deepinfer_core.config import load_settings
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.service.messages import (
    FRONT_LANGUAGE,
    LoadFailed,
    Loading,
    Ready,
    Start,
    StepDone,
    Stop,
)
from deepinfer_core.engine.service.requests import submit_message
from deepinfer_core.interfaces.async_engine import GenerateRequest
from deepinfer_core.testing.fake_service import FakeService, command_of

WAIT_S = 30


@contextmanager
def started(service: FakeService) -> Iterator[tuple["subprocess.Popen[bytes]", socket.socket]]:
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(
        [*command_of(service), str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        stderr=subprocess.PIPE,
    )
    theirs.close()
    try:
        yield process, ours
    finally:
        process.kill()
        process.communicate()
        ours.close()


def start_message(**settings: Any) -> Start:
    loaded = load_settings(environ={}, api=settings)
    return Start(settings=loaded.to_json(), path=list(sys.path))


def test_it_loads_serves_and_ends_when_it_is_told_to_whatever_signals_come() -> None:
    with started(FakeService(step_s=0.01)) as (process, ours):
        end: ThreadEnd[Any, Any] = ThreadEnd(ours, FRONT_LANGUAGE)
        end.send(start_message())
        messages = end.messages()
        loading = [next(messages) for _ in range(4)]
        assert all(isinstance(message, Loading) for message in loading)
        ready = next(messages)
        assert isinstance(ready, Ready)
        assert ready.facts.report["process_id"] == process.pid
        params = SamplingParams(max_tokens=20, ignore_eos=True)
        request = GenerateRequest(request_id="a", prompt_token_ids=(9,), params=params)
        end.send(submit_message(5, request))
        os.kill(process.pid, signal.SIGTERM)  # the front's business
        os.kill(process.pid, signal.SIGINT)
        tokens, has_ended = 0, False
        while not has_ended:
            step = next(messages)
            assert isinstance(step, StepDone)
            tokens += sum(len(one.token_ids) for one in step.grown)
            has_ended = bool(step.ended)
        assert tokens == 20
        end.send(Stop("enough"))
        assert process.wait(WAIT_S) == 0
        assert list(messages) == []
        end.close()


@pytest.mark.parametrize(
    "spoken",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(FRONT_LANGUAGE.greeting()),
        bytes(FRONT_LANGUAGE.greeting() + FRONT_LANGUAGE.pack(Stop("x"))),
        bytes(FRONT_LANGUAGE.greeting()) + b"\xff\xff\xff\xff",
    ],
    ids=["nothing", "http", "greeting", "no start", "length"],
)
def test_it_ends_if_nobody_tells_it_what_to_load(spoken: bytes) -> None:
    with started(FakeService()) as (process, ours):
        ours.sendall(spoken)
        ours.shutdown(socket.SHUT_WR)
        assert process.wait(WAIT_S) == 1


def test_a_failed_load_is_told_and_ends_it() -> None:
    with started(FakeService(refusal="DeviceError")) as (process, ours):
        end: ThreadEnd[Any, Any] = ThreadEnd(ours, FRONT_LANGUAGE)
        end.send(start_message())
        *_, last = end.messages()
        assert isinstance(last, LoadFailed)
        assert (last.fault.code, last.fault.hint) == ("device_error", "as the test says")
        assert process.wait(WAIT_S) == 1
        assert process.stderr is not None
        assert process.stderr.read() == b""
        end.close()
