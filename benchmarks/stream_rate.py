"""How many events a second does the service stream, next to a server that only repeats the bytes?

So many streams at once, each with so many tokens. Server and client have a core each. The peer is
``stream_servers.echo``: a bare application that sends the pieces of one of the service's own
responses. Both are measured in turns, on the same server and by the same client, which counts every
byte. The processor time of a server's process, by events, does not depend on who else is busy.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop
from deepinfer_core.bench.serve.connection import Connection
from record import figure, options, write

STREAMS = 256
TOKENS = 200
ROUNDS = 5
ASKED_RATIO = 0.6
PEER = "bare ASGI echo of the same bytes"
SERVERS = Path(__file__).with_name("stream_servers.py")
PATHS = {
    "core.completions": "/v1/completions",
    "bridge.chat": "/v1/chat/completions",
    "bridge.responses": "/v1/responses",
    "bridge.messages": "/v1/messages",
}
CORES = sorted(os.sched_getaffinity(0))


@dataclass(slots=True)
class Pieces:
    """A response, as it was written."""

    status: int = 0
    pieces: list[bytes] = field(default_factory=list)
    retry_after_s: float = 0.0

    def begin(self, status: int, now_s: float) -> None:
        """Note the status."""
        self.status = status

    def add(self, piece: bytes, now_s: float) -> None:
        """Keep a piece."""
        self.pieces.append(piece)


@dataclass(slots=True)
class Count:
    """A response, of which only the length is kept."""

    status: int = 0
    length: int = 0
    retry_after_s: float = 0.0

    def begin(self, status: int, now_s: float) -> None:
        """Note the status."""
        self.status = status

    def add(self, piece: bytes, now_s: float) -> None:
        """Count."""
        self.length += len(piece)


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs.

    Attributes:
        port: that it listens on.
        process: its number.
    """

    port: int
    process: int

    @property
    def processor_s(self) -> float:
        """Processor time that it used so far."""
        return processor_s(self.process)


def processor_s(process: int) -> float:
    """Processor time that a process used so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def server(kind: str, argument: str) -> Iterator[Server]:
    """Run a server on the first core."""
    command = [sys.executable, str(SERVERS), kind, argument]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            os.sched_setaffinity(process.pid, CORES[:1])
            yield Server(int(port), process.pid)
        finally:
            process.terminate()


def body(protocol: str, tokens: int) -> dict[str, Any]:
    """A request for so many tokens as a stream."""
    asked: dict[str, Any] = {"model": "prepared", "stream": True}
    if protocol == "core.completions":
        return {**asked, "prompt": "Once upon", "max_tokens": tokens}
    if protocol == "bridge.responses":
        return {**asked, "input": "Once upon", "max_output_tokens": tokens}
    return {
        **asked, "messages": [{"role": "user", "content": "Once upon"}], "max_tokens": tokens,
    }  # fmt: skip


def request(protocol: str, tokens: int) -> bytes:
    """Its bytes."""
    content = json.dumps(body(protocol, tokens)).encode()
    head = (
        f"POST {PATHS[protocol]} HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


async def responses(port: int, asked: list[bytes], receivers: list[Any]) -> float:
    """Ask at once over a connection each; seconds from the first request to the last end."""
    loop = asyncio.get_running_loop()
    made = [await loop.create_connection(Connection, "127.0.0.1", port) for _ in receivers]
    connections = [connection for _, connection in made]
    began_s = time.perf_counter()
    await asyncio.gather(
        *(one.exchange(*pair) for one, *pair in zip(connections, asked, receivers, strict=True))
    )
    elapsed_s = time.perf_counter() - began_s
    for connection in connections:
        connection.close()
        await connection.wait_closed()
    return elapsed_s


def run(port: int, asked: bytes, receivers: list[Any]) -> float:
    """The same on the last core, in an event loop of its own."""
    os.sched_setaffinity(0, CORES[-1:])
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(responses(port, [asked] * len(receivers), receivers))
    finally:
        os.sched_setaffinity(0, CORES)


def measure(place: Server, asked: bytes, streams: int, expected: list[bytes]) -> dict[str, float]:
    """One round; every response must be as long as the expected one."""
    counts = [Count() for _ in range(streams)]
    before_s, client_before_s, waits_before = place.processor_s, time.process_time(), waits()
    elapsed_s = run(place.port, asked, counts)
    client_s, server_s = time.process_time() - client_before_s, place.processor_s - before_s
    waited = waits() - waits_before
    wrong = {(one.status, one.length) for one in counts} - {(200, sum(map(len, expected)))}
    if wrong:
        raise SystemExit(f"responses differ from the first one: status and length {wrong}")
    events = streams * sum(piece.count(b"\n\n") for piece in expected)
    return {
        "events_per_s": events / elapsed_s,
        "server_us": server_s / events * 1e6,
        "server_busy": server_s / elapsed_s,
        "client_busy": client_s / elapsed_s,
        "client_waits": waited / events,
    }


def waits() -> int:
    """How often this process has waited; whoever sends to a waiting one also wakes it."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Of each reading."""
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}


def compared(protocol: str, args: Any) -> list[dict[str, object]]:
    """Measure service and echo in turns."""
    asked = request(protocol, args.tokens)
    found: dict[str, list[dict[str, float]]] = {"service": [], "echo": []}
    with tempfile.TemporaryDirectory() as folder, server("service", protocol) as ours:
        first = Pieces()
        run(ours.port, asked, [first])
        if first.status != 200:
            raise SystemExit(f"{protocol} answered {first.status}: {b''.join(first.pieces)!r}")
        file = Path(folder, "pieces.json")
        file.write_text(json.dumps([piece.decode() for piece in first.pieces]))
        with server("echo", str(file)) as echo:
            for number in range(args.rounds + 1):
                for name, place in (("service", ours), ("echo", echo)):
                    one = measure(place, asked, args.streams, first.pieces)
                    if number:  # the first one warms up
                        found[name].append(one)
    mine, theirs = medians(found["service"]), medians(found["echo"])
    size = statistics.mean(len(piece) for piece in first.pieces)
    ratio = mine["events_per_s"] / theirs["events_per_s"]
    return [
        figure(
            f"stream_rate.events[{protocol}]", round(mine["events_per_s"]), "events/s",
            peer={"name": PEER, "value": round(theirs["events_per_s"])},
            ratio=round(ratio, 3), asked_ratio=ASKED_RATIO, streams=args.streams,
            tokens=args.tokens, writes=len(first.pieces), bytes_per_write=round(size),
            service=_rounded(mine), echo=_rounded(theirs),
        ),
        figure(
            f"stream_rate.processor_time[{protocol}]", round(mine["server_us"], 1), "us/event",
            peer={"name": PEER, "value": round(theirs["server_us"], 1)},
            ratio=round(mine["server_us"] / theirs["server_us"], 3),
        ),
    ]  # fmt: skip


def _rounded(readings: dict[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.3g}") for name, value in readings.items()}


def main() -> None:
    """Measure and store."""
    parser = options(__doc__)
    parser.add_argument("--protocols", nargs="+", choices=PATHS, default=list(PATHS))
    parser.add_argument("--streams", type=int, default=STREAMS)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    args = parser.parse_args()
    figures = [one for protocol in args.protocols for one in compared(protocol, args)]
    write("stream_rate.json", figures, is_record=args.record)


if __name__ == "__main__":
    main()
