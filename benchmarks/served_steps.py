"""Does a step of the engine take longer while its tokens are streamed to many clients?

The same load three times: through ``deepinfer serve`` with a client on the other end of each
connection, through the engine's process without HTTP, and in an engine that nobody else talks to.
The engine has the first core, everything else the last one, so that what is compared is the
engine's own work. A step's time is that of its metric ``deepinfer_step_seconds``, decoding steps
only; of several rounds the fastest one counts, since what disturbs a round only adds. The engine's
processor time by its steps, prompts included, says the same on a machine that is busy.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvloop
from deepinfer_core.config import load_settings
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.interfaces.async_engine import GenerateRequest
from deepinfer_core.server.engine_process import EngineProcess
from deepinfer_core.testing.asked_service import children, port_of
from record import figure, options, write
from stream_rate import CORES, Count, processor_s, responses

from deepinfer_core import LLM

STREAMS = 256
TOKENS = 64
PROMPT_TOKENS = 16
ROUNDS = 5
FIRST_ID, LAST_ID = 1000, 4000
"""Ordinary tokens of the small checkpoint."""


def overrides(args: Any) -> list[str]:
    """Settings of all three engines."""
    return [f"engine.max_num_seqs={args.streams}", "engine.prefix_cache=false"]


def prompts(args: Any, number: int) -> list[list[int]]:
    """Of one round."""
    source = random.Random(number)
    return [source.choices(range(FIRST_ID, LAST_ID), k=PROMPT_TOKENS) for _ in range(args.streams)]


def decode_steps(metrics: str) -> tuple[float, int]:
    """Seconds and number of decoding steps so far."""
    pattern = r'^deepinfer_step_seconds_{}\{{kind="decode"\}} (\S+)$'
    found = [re.search(pattern.format(name), metrics, re.M) for name in ("sum", "count")]
    seconds, count = (float(one.group(1)) if one else 0.0 for one in found)
    return seconds, int(count)


async def rounds(
    args: Any,
    engine: int,
    run: Callable[[int], Awaitable[None]],
    metrics: Callable[[], Awaitable[str]],
) -> dict[str, float]:
    """Run all rounds behind one that does not count; the fastest one's readings."""
    found = []
    for number in range(args.rounds + 1):
        before_s, before = decode_steps(await metrics())
        began_s, processor_before_s = time.perf_counter(), processor_s(engine)
        await run(number)
        elapsed_s = time.perf_counter() - began_s
        used_s = processor_s(engine) - processor_before_s
        after_s, after = decode_steps(await metrics())
        if number:
            steps = after - before
            reading = {
                "step_ms": (after_s - before_s) / steps * 1e3,
                "processor_ms": used_s / steps * 1e3,
                "tokens_per_s": args.streams * args.tokens / elapsed_s,
                "steps": steps,
            }
            found.append(reading)
    best = min(found, key=lambda one: one["step_ms"])
    return {**best, "processor_ms": min(one["processor_ms"] for one in found)}


async def alone(args: Any) -> dict[str, float]:
    """In an engine of this process, on the first core."""
    os.sched_setaffinity(0, CORES[:1])
    params = SamplingParams(temperature=0, max_tokens=args.tokens, ignore_eos=True)
    with LLM.from_settings(load_settings(overrides=overrides(args))) as llm:

        async def run(number: int) -> None:
            llm.generate(prompts(args, number), params)

        async def metrics() -> str:
            return llm.metrics_text()

        return await rounds(args, os.getpid(), run, metrics)


async def behind_channel(args: Any) -> dict[str, float]:
    """In a process of its own; what comes back is thrown away."""
    engine = EngineProcess(load_settings(overrides=overrides(args)))
    try:
        await engine.ready()
        separate(os.getpid(), engine.process_id or 0)
        params = SamplingParams(temperature=0, max_tokens=args.tokens, ignore_eos=True)

        async def one(name: str, prompt: list[int]) -> None:
            request = GenerateRequest(
                request_id=name, prompt_token_ids=tuple(prompt), params=params
            )
            async for _ in engine.generate(request):
                pass

        async def run(number: int) -> None:
            asked = enumerate(prompts(args, number))
            await asyncio.gather(*(one(f"{number}-{place}", prompt) for place, prompt in asked))

        return await rounds(args, engine.process_id or 0, run, engine.metrics_text)
    finally:
        await engine.close()


async def served(args: Any) -> dict[str, float]:
    """By the whole service, to one client a stream."""
    with service(args) as (port, engine):

        async def run(number: int) -> None:
            counts = [Count() for _ in range(args.streams)]
            asked = [request(one, args.tokens) for one in prompts(args, number)]
            await responses(port, asked, counts)
            wrong = {one.status for one in counts} - {200}
            if wrong:
                raise SystemExit(f"the service answered with {wrong}")

        async def metrics() -> str:
            return await asyncio.to_thread(page, f"http://127.0.0.1:{port}/metrics")

        return await rounds(args, engine, run, metrics)


@contextmanager
def service(args: Any) -> Iterator[tuple[int, int]]:
    """Port of ``deepinfer serve`` and process of its engine, which has the first core."""
    command = [sys.executable, "-P", "-m", "deepinfer_core", "serve", "--port", "0"]
    command += [part for text in overrides(args) for part in ("--set", text)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = port_of(process)
            [engine] = children(process.pid)
            separate(process.pid, engine)
            yield port, engine
        finally:
            process.terminate()


def page(url: str) -> str:
    """Its text."""
    with urllib.request.urlopen(url) as answer:
        return str(answer.read(), "utf-8")


def separate(front: int, engine: int) -> None:
    """Give the engine's threads the first core, those of the front and of this process the last."""
    for process, cores in ((front, CORES[-1:]), (os.getpid(), CORES[-1:]), (engine, CORES[:1])):
        for thread in os.listdir(f"/proc/{process}/task"):
            os.sched_setaffinity(int(thread), cores)


def request(prompt: list[int], tokens: int) -> bytes:
    """The bytes of a request for a stream."""
    limits = {"max_tokens": tokens, "ignore_eos": True}
    content = json.dumps({"prompt": prompt, **limits, "temperature": 0, "stream": True}).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


MODES = {"alone": alone, "behind_channel": behind_channel, "served": served}


def readings(mode: str, args: Any) -> dict[str, float]:
    """Of one mode, in a process of its own, so that no mode finds another one's threads."""
    numbers = ("--streams", args.streams, "--tokens", args.tokens, "--rounds", args.rounds)
    command = [sys.executable, __file__, "--mode", mode, *map(str, numbers)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(mode, found, file=sys.stderr)
    return found


def main() -> None:
    """Measure and store."""
    parser = options(__doc__)
    parser.add_argument("--mode", choices=MODES)
    parser.add_argument("--streams", type=int, default=STREAMS)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    args = parser.parse_args()
    if args.mode:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(json.dumps(runner.run(MODES[args.mode](args))))
        return
    found = {mode: readings(mode, args) for mode in MODES}
    base = found["alone"]
    figures = [
        figure(
            f"served_steps.decode_step[{mode}]", round(one["step_ms"], 3), "ms",
            peer={"name": "an engine alone", "value": round(base["step_ms"], 3)},
            ratio=round(one["step_ms"] / base["step_ms"], 3), streams=args.streams,
            tokens_per_s=round(one["tokens_per_s"]), steps=one["steps"],
            processor_ms=round(one["processor_ms"], 3),
            processor_ratio=round(one["processor_ms"] / base["processor_ms"], 3),
        )
        for mode, one in found.items()
    ]  # fmt: skip
    write("served_steps.json", figures, is_record=args.record)


if __name__ == "__main__":
    main()
