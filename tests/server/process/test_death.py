"""What happens when the engine's process, or the one in front of it, dies."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.channel.restarts import Restarts
from deepinfer_core.config import load_settings
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.service.messages import FRONT_LANGUAGE
from deepinfer_core.errors import DeepInferError, EngineError, EngineUnavailable, WeightsError
from deepinfer_core.interfaces.async_engine import Finished, GenerateRequest
from deepinfer_core.server.engine_process import EngineProcess
from deepinfer_core.telemetry.progress import PhaseFinished, ProgressEvent
from deepinfer_core.testing.fake_service import FakeService, command_of

Run = Callable[[Callable[[], Any]], None]
OpenProcess = Callable[..., Any]

REQUESTS = 20


def request(name: str, max_tokens: int) -> GenerateRequest:
    params = SamplingParams(max_tokens=max_tokens, seed=1, ignore_eos=True)
    return GenerateRequest(request_id=name, prompt_token_ids=(20, 21, 22), params=params)


async def outcome(engine: EngineProcess, asked: GenerateRequest) -> Finished | DeepInferError:
    try:
        *_, last = [item async for item in engine.generate(asked)]
    except DeepInferError as error:
        return error
    assert isinstance(last, Finished)
    return last


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - nothing tells when it is so
        await asyncio.sleep(0.002)


def kill(engine: EngineProcess) -> None:
    assert engine.process_id is not None
    os.kill(engine.process_id, signal.SIGKILL)


def test_requests_in_work_fail_with_a_reason_and_the_next_engine_answers(
    open_process: OpenProcess, run_async: Run, data_seed: int
) -> None:
    async def main() -> None:
        rng = random.Random(data_seed)
        async with open_process(FakeService(step_s=0.002)) as engine:
            for round_ in range(4):
                names = [f"{round_}-{n}" for n in range(REQUESTS)]
                # Some end before the blow, wherever it falls, and most do not.
                running = [
                    asyncio.ensure_future(outcome(engine, request(name, rng.choice((1, 400)))))
                    for name in names
                ]
                await asyncio.sleep(rng.uniform(0.0, 0.1))
                kill(engine)
                found = await asyncio.gather(*running)
                failures = [one for one in found if not isinstance(one, Finished)]
                assert failures
                for failure in failures:
                    assert type(failure) is EngineUnavailable
                    assert "SIGKILL" in failure.message
                    assert failure.hint
                assert engine.in_work == 0
                await until(lambda: engine.state == "ready")
                assert isinstance(await outcome(engine, request("next", 5)), Finished)
            assert engine.report.attempt == 5
            assert "SIGKILL" in engine.report.last_failure

    run_async(main)


def test_requests_between_two_engines_are_told_to_come_again(
    open_process: OpenProcess, run_async: Run
) -> None:
    async def main() -> None:
        async with open_process(restarts=Restarts(first_wait_s=0.3)) as engine:
            kill(engine)
            await until(lambda: engine.state == "dead")
            assert isinstance(await outcome(engine, request("a", 5)), EngineUnavailable)
            assert await engine.metrics_text() == ""
            assert engine.facts.model == "fake"
            await until(lambda: engine.state == "loading")
            assert isinstance(await outcome(engine, request("a", 5)), EngineUnavailable)
            await until(lambda: engine.state == "ready")

    run_async(main)


def test_an_engine_that_cannot_be_started_again_is_given_up(
    open_process: OpenProcess, run_async: Run, tmp_path: Path
) -> None:
    async def main() -> None:
        service = FakeService(marker=str(tmp_path / "started"))
        restarts = Restarts(first_wait_s=0.01, most=2)
        async with open_process(service, restarts=restarts) as engine:
            kill(engine)
            failure = await engine.given_up()
            assert isinstance(failure, WeightsError)
            assert failure.hint == "bring them back"
            assert engine.state == "dead"
            assert engine.report.attempt == 3
            assert isinstance(await outcome(engine, request("a", 5)), EngineUnavailable)

    run_async(main)


@pytest.mark.parametrize(
    ("service", "kind", "text"),
    [
        (FakeService(refusal="ConfigError"), "ConfigError", "it is refused"),
        (FakeService(refusal="DeviceError"), "DeviceError", "it is refused"),
        (FakeService(exit_status=7), "EngineError", "exit status 7"),
    ],
)
def test_whoever_waits_for_the_first_engine_learns_why_there_is_none(
    open_process: OpenProcess, run_async: Run, service: FakeService, kind: str, text: str
) -> None:
    async def main() -> None:
        events: list[ProgressEvent] = []
        async with open_process(service, is_ready=False, progress=events.append) as engine:
            assert engine.state == "loading"
            with pytest.raises(DeepInferError, match=text) as caught:
                await engine.ready()
            assert type(caught.value).__name__ == kind
            assert engine.state == "dead"
            await engine.given_up()
            [phase] = engine.report.to_json()["phases"]
            assert (phase["phase"], phase["done"], phase["total"]) == ("fake.load", 1, 2)
            assert phase["outcome"] == "failed"
            # Also where the engine did not live to say it: a terminal's bar must come to its end.
            assert isinstance(events[-1], PhaseFinished)
            assert events[-1].outcome == "failed"

    run_async(main)


def test_a_program_that_cannot_be_run_is_a_reason_too(run_async: Run) -> None:
    async def main() -> None:
        engine = EngineProcess(load_settings(environ={}), command=["/no/such/program"])
        with pytest.raises(EngineError, match="cannot be started"):
            await engine.ready()
        await engine.close()

    run_async(main)


STRANGER = """
import os, sys, time
os.write(int(sys.argv[2]), bytes.fromhex(sys.argv[1]))
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (b"\xff\xff\xff\xff", "4,294,967,295 bytes"),
        (b"\x03\x00\x00\x00abc", "did not greet"),
        (bytes(replace(FRONT_LANGUAGE, version="0.0.0").greeting()), "of 0.0.0"),
        (bytes(FRONT_LANGUAGE.greeting()) + b"\x01\x00\x00\x00\xc1", "cannot be read"),
    ],
)
def test_a_program_that_says_what_it_may_not_say_is_ended_at_once(
    run_async: Run, gone: Callable[[int], bool], said: bytes, text: str
) -> None:
    async def main() -> None:
        command = [sys.executable, "-c", STRANGER, said.hex()]
        engine = EngineProcess(load_settings(environ={}), command=command)
        await until(lambda: engine.process_id)
        number = engine.process_id
        with pytest.raises(EngineError, match=text):
            await engine.ready()
        assert number is not None
        assert gone(number)
        await engine.close()

    run_async(main)


def test_an_engine_may_be_closed_while_it_loads(open_process: OpenProcess, run_async: Run) -> None:
    async def main() -> None:
        async with open_process(FakeService(load_s=60), is_ready=False) as engine:
            await until(lambda: engine.report.to_json()["phases"])
            await engine.close()
            with pytest.raises(EngineError):
                await engine.ready()
            await engine.close()

    run_async(main)


def test_closing_ends_what_runs_with_the_reason(open_process: OpenProcess, run_async: Run) -> None:
    async def main() -> None:
        async with open_process(FakeService(step_s=0.01)) as engine:
            running = asyncio.ensure_future(outcome(engine, request("a", 400)))
            await until(lambda: engine.in_work)
            await engine.close()
            failure = await running
            assert isinstance(failure, EngineError)
            assert "the service was stopped" in failure.message

    run_async(main)


FRONT = """
import asyncio, os, signal, sys
from deepinfer_core.config import load_settings
from deepinfer_core.server.engine_process import EngineProcess

async def main():
    engine = EngineProcess(load_settings(environ={}), command=sys.argv[1:])
    print(engine.process_id or "", flush=True)
    while not engine.process_id or not engine.report.to_json()["phases"]:
        await asyncio.sleep(0.01)
    if os.environ.get("WAIT_READY"):
        await engine.ready()
    print(engine.process_id, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.parametrize("service", [FakeService(load_s=60), FakeService()])
def test_the_engine_ends_with_the_process_in_front_of_it(
    service: FakeService, gone: Callable[[int], bool]
) -> None:
    environ = {**os.environ, "WAIT_READY": "" if service.load_s else "1"}
    front = subprocess.run(
        [sys.executable, "-c", FRONT, *command_of(service)], capture_output=True, env=environ
    )
    assert front.returncode == -signal.SIGKILL, front.stderr
    assert gone(int(front.stdout.split()[-1]))
