"""A service from when it listens until it has ended, as a process that gets real signals."""

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx2
import pytest
from deepinfer_core.testing.fake_service import FakeService

Run = Callable[[Callable[[], Any]], None]

SERVICE = """
import asyncio, json, sys
import uvloop
from deepinfer_core.config import load_settings
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.interfaces.async_engine import GenerateRequest, Tokens
from deepinfer_core.interfaces.protocol import Endpoint, EventAnswer
from deepinfer_core.server.dialect import OPENAI, json_bytes
from deepinfer_core.server.engine_process import EngineProcess
from deepinfer_core.server.launcher import Service, run_service
from deepinfer_core.server.listener import address_of, open_listener
from deepinfer_core.channel.restarts import Restarts
from deepinfer_core.testing.fake_service import FakeService, command_of
from deepinfer_core.testing.served import app_of

def endpoints(view):
    async def say(call):
        params = SamplingParams(max_tokens=call.body["max_tokens"], seed=1, ignore_eos=True)
        request = GenerateRequest(
            request_id=call.request_id, prompt_token_ids=(20, 21), params=params
        )
        async def events():
            async for item in view.engine.generate(request):
                if isinstance(item, Tokens):
                    yield b"data: " + json_bytes(item.token_ids) + b"\\n\\n"
            yield b"data: [DONE]\\n\\n"
        return EventAnswer(events=events())
    return [Endpoint(method="POST", path="/say", handle=say, dialect=OPENAI, body={})]

async def main():
    fake, keys = FakeService(**json.loads(sys.argv[1])), json.loads(sys.argv[2])
    loaded = load_settings(environ={}, api={"server.port": 0, **keys})
    settings = loaded.settings.server
    process = EngineProcess(
        loaded, command=command_of(fake), restarts=Restarts(first_wait_s=0.01, most=1)
    )
    app = app_of(endpoints, engine=process, settings=settings, progress=process.progress)
    listener = open_listener(settings, has_keys=False)
    print(address_of(listener), flush=True)
    service = Service(
        app=app, engine=app.engine, process=process, settings=settings, listener=listener
    )
    await run_service(
        service,
        lambda: print("ready", process.process_id, flush=True),
        lambda *told: print("stopping", *told, flush=True),
    )
    print("ended", flush=True)

with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main())
"""


class Served:
    """A service, and a client of it."""

    def __init__(self, process: Process, client: httpx2.AsyncClient, log: Path) -> None:
        self.process = process
        self.client = client
        self.log = log
        self.engine_id = 0

    def logged(self) -> str:
        """What it wrote to standard error."""
        return self.log.read_text(encoding="utf-8")

    async def line(self) -> str:
        assert self.process.stdout is not None
        return (await self.process.stdout.readline()).decode().strip()

    async def say(self, max_tokens: int, told: Callable[[], None] = lambda: None) -> list[str]:
        """Events of an answer; ``error`` in place of its end if it has none."""
        found: list[str] = []
        body = {"max_tokens": max_tokens}
        try:
            async with self.client.stream("POST", "/say", json=body) as answer:
                async for line in answer.aiter_lines():
                    if line.startswith("data: "):
                        found.append(line.removeprefix("data: "))
                        told()
                if answer.status_code != 200:
                    return [str(answer.status_code)]
        except httpx2.HTTPError as error:
            return [*found, type(error).__name__]
        return found

    async def status(self, path: str) -> int:
        return (await self.client.get(path)).status_code

    async def until(self, path: str, is_so: Callable[[httpx2.Response], bool]) -> httpx2.Response:
        """Ask until the answer is as wished; a service that stops may close what it is asked on."""
        while True:
            with contextlib.suppress(httpx2.ReadError, httpx2.RemoteProtocolError):
                if is_so(answer := await self.client.get(path)):
                    return answer
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def serving(
    service: FakeService, *, is_ready: bool = True, **settings: Any
) -> AsyncIterator[Served]:
    keys = {name.replace("__", "."): value for name, value in settings.items()}
    with tempfile.NamedTemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SERVICE, json.dumps(asdict(service)), json.dumps(keys),
            stdout=PIPE, stderr=log,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            url = (await process.stdout.readline()).decode().strip()
            limits = httpx2.Limits(max_connections=None)
            async with httpx2.AsyncClient(base_url=url, timeout=30, limits=limits) as client:
                served = Served(process, client, Path(log.name))
                if is_ready:
                    word, number = (await served.line()).split()
                    assert word == "ready"
                    served.engine_id = int(number)
                yield served
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()


def is_refused(answer: httpx2.Response) -> bool:
    return answer.status_code == 503


def is_whole(events: list[str], tokens: int) -> bool:
    found = sum(len(json.loads(event)) for event in events[:-1])
    return events[-1] == "[DONE]" and found == tokens


def test_everything_that_was_admitted_ends_well_after_a_signal_to_stop(run_async: Run) -> None:
    async def main() -> None:
        async with serving(FakeService(step_s=0.005), server__drain_seconds=30) as served:
            begun = asyncio.Event()
            count = 40  # more than run at once, so that some wait for their turn
            running = [
                asyncio.create_task(served.say(100, begun.set if n == 0 else lambda: None))
                for n in range(count)
            ]
            await begun.wait()
            await served.until("/progress", lambda answer: answer.json()["in_work"] == count)
            served.process.send_signal(signal.SIGTERM)
            await served.until("/ready", is_refused)
            assert await served.status("/health") == 200
            late = await served.client.post("/say", json={"max_tokens": 1})
            assert late.status_code == 503
            assert int(late.headers["retry-after"]) > 0
            assert all(is_whole(found, 100) for found in await asyncio.gather(*running))
            assert await served.line() == f"stopping {count} 30.0"
            assert await served.line() == "ended"
            assert await served.process.wait() == 0

    run_async(main)


LATE = "timeout graceful shutdown exceeded"
"""What uvicorn logs when it waited for a call in vain."""


async def half_a_call(served: Served) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    url = served.client.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port)
    head = b"POST /say HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    writer.write(head + b"content-length: 100\r\n\r\n{")
    await writer.drain()
    return reader, writer


def test_a_call_whose_body_is_not_there_is_refused_while_what_was_admitted_goes_on(
    run_async: Run,
) -> None:
    async def main() -> None:
        async with serving(FakeService(step_s=0.01), server__drain_seconds=30) as served:
            begun = asyncio.Event()
            long = asyncio.create_task(served.say(400, begun.set))
            await begun.wait()
            reader, writer = await half_a_call(served)
            in_work = "deepinfer_http_requests_in_work 3.0"  # this one, that one, and this question
            await served.until("/metrics", lambda answer: in_work in answer.text)
            served.process.send_signal(signal.SIGTERM)
            answer = await reader.read()
            assert not long.done()
            assert answer.startswith(b"HTTP/1.1 503")
            assert b"retry-after" in answer
            assert b"shutting down" in answer
            assert is_whole(await long, 400)
            writer.close()
            assert await served.process.wait() == 0
            assert "Exception in ASGI application" not in served.logged()
            assert LATE not in served.logged()

    run_async(main)


def test_a_call_whose_body_never_comes_is_not_waited_for_at_the_end(run_async: Run) -> None:
    async def main() -> None:
        async with serving(FakeService(step_s=0.01), server__drain_seconds=30) as served:
            begun = asyncio.Event()
            long = asyncio.create_task(served.say(200, begun.set))
            await begun.wait()
            served.process.send_signal(signal.SIGTERM)
            await served.until("/ready", is_refused)
            reader, writer = await half_a_call(served)
            assert is_whole(await long, 200)
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 503")
            assert b"shutting down" in answer
            writer.close()
            assert await served.process.wait() == 0
            assert LATE not in served.logged()

    run_async(main)


def test_a_signal_while_nothing_is_in_work_says_so_and_ends_the_service(run_async: Run) -> None:
    async def main() -> None:
        async with serving(FakeService(), server__drain_seconds=30) as served:
            reader, writer = await half_a_call(served)
            served.process.send_signal(signal.SIGTERM)
            assert await served.line() == "stopping 0 30.0"
            assert await served.line() == "ended"
            assert b"503" in await reader.read()
            writer.close()
            assert await served.process.wait() == 0
            assert LATE not in served.logged()

    run_async(main)


def test_what_does_not_end_in_time_gets_an_error_in_its_stream(run_async: Run) -> None:
    async def main() -> None:
        async with serving(FakeService(step_s=0.02), server__drain_seconds=0.3) as served:
            begun = asyncio.Event()
            long = asyncio.create_task(served.say(500, begun.set))
            await begun.wait()
            waiting = [asyncio.create_task(served.say(500)) for _ in range(30)]
            await served.until("/progress", lambda answer: answer.json()["waiting"] > 0)
            served.process.send_signal(signal.SIGTERM)
            events = await long
            message = json.loads(events[-1])["error"]["message"]
            assert "shutting down" in message
            assert " 0 s" not in message
            assert all(json.loads(event) for event in events[:-1])
            for found in await asyncio.gather(*waiting):
                # Those that had begun get the error in their stream, the others a status.
                assert found == ["503"] or "error" in json.loads(found[-1])
            assert await served.process.wait() == 0

    run_async(main)


def descriptors(process_id: int) -> int:
    return len(os.listdir(f"/proc/{process_id}/fd"))


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="counts descriptors in /proc")
def test_clients_that_go_away_at_any_moment_leave_nothing(run_async: Run, data_seed: int) -> None:
    call = b'{"max_tokens":200}'
    head = b"POST /say HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    message = head + b"content-length: %d\r\n\r\n" % len(call) + call

    async def come_and_go(port: int, rng: random.Random, places: asyncio.Semaphore) -> None:
        async with places:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(message[: rng.choice((0, 20, len(message) - 1, len(message)))])
            if rng.random() < 0.7:
                writer.write(message)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rng.uniform(0, 0.05)):
                    while await reader.read(rng.randrange(1, 500)):
                        pass
            writer.transport.abort()

    async def main() -> None:
        rng, places = random.Random(data_seed), asyncio.Semaphore(40)
        async with serving(FakeService(step_s=0.002)) as served:
            assert is_whole(await served.say(3), 3)
            own, engine = descriptors(served.process.pid), descriptors(served.engine_id)
            port = served.client.base_url.port
            assert port is not None
            await asyncio.gather(*[come_and_go(port, rng, places) for _ in range(300)])
            await served.until("/progress", lambda answer: answer.json()["in_work"] == 0)
            while descriptors(served.process.pid) > own:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
            # What was aborted last may be on its way to the engine.
            for figure in ("kv_cache_blocks", "state_slots"):
                empty = f'deepinfer_{figure}{{state="used"}} 0.0'
                await served.until("/metrics", lambda answer, empty=empty: empty in answer.text)
            while descriptors(served.engine_id) > engine:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
            served.process.send_signal(signal.SIGTERM)
            assert await served.process.wait() == 0
            assert "Traceback" not in served.logged()
            assert "call.failed" not in served.logged()

    run_async(main)


def test_a_second_signal_ends_the_wait(run_async: Run) -> None:
    async def main() -> None:
        async with serving(FakeService(step_s=0.02), server__drain_seconds=3600) as served:
            begun = asyncio.Event()
            long = asyncio.create_task(served.say(500, begun.set))
            await begun.wait()
            served.process.send_signal(signal.SIGINT)
            await served.until("/ready", is_refused)
            served.process.send_signal(signal.SIGINT)
            assert "error" in json.loads((await long)[-1])
            assert await served.process.wait() == 0

    run_async(main)


def test_probes_are_answered_while_the_engine_loads_and_a_signal_ends_that_too(
    run_async: Run,
) -> None:
    async def main() -> None:
        async with serving(FakeService(load_s=60), is_ready=False) as served:
            assert await served.status("/health") == 200
            assert await served.status("/ready") == 503
            assert await served.say(1) == ["503"]
            # That a phase begins and that it advances are two messages of the engine.
            await served.until(
                "/progress",
                lambda answer: [one["done"] for one in answer.json()["loading"]["phases"]] == [1],
            )
            served.process.send_signal(signal.SIGTERM)
            assert await served.line() == "stopping 0 30.0"
            assert await served.line() == "ended"
            assert await served.process.wait() == 0

    run_async(main)


def test_a_service_outlives_its_engine(run_async: Run) -> None:
    async def main() -> None:
        async with serving(FakeService(step_s=0.02)) as served:
            begun = asyncio.Event()
            running = asyncio.create_task(served.say(400, begun.set))
            await begun.wait()
            os.kill(served.engine_id, signal.SIGKILL)
            assert "SIGKILL" in json.loads((await running)[-1])["error"]["message"]
            await served.until("/ready", lambda answer: answer.status_code == 200)
            assert is_whole(await served.say(3), 3)
            served.process.send_signal(signal.SIGTERM)
            assert await served.process.wait() == 0

    run_async(main)


def test_a_service_whose_engine_is_lost_says_so_and_ends_with_an_error(
    run_async: Run, tmp_path: Path
) -> None:
    async def main() -> None:
        service = FakeService(marker=str(tmp_path / "started"))
        async with serving(service) as served:
            os.kill(served.engine_id, signal.SIGKILL)
            await served.until("/health", is_refused)
            assert await served.process.wait() != 0
            assert "the weights are gone" in served.logged()

    run_async(main)


def test_a_service_without_an_engine_ends_with_the_reason(run_async: Run) -> None:
    async def main() -> None:
        async with serving(FakeService(refusal="ConfigError"), is_ready=False) as served:
            assert await served.process.wait() != 0
            assert "it is refused" in served.logged()

    run_async(main)
