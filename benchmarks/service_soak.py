"""Does a service give everything back after thousands of clients, many of whom went away?

``soak_front`` with the small checkpoint, so few blocks and places that requests wait and lose what
they hold, and the clients of ``soak_clients``, many at once. The first half warms up: meanwhile the
engine records steps of every size, and its caches fill. Afterwards nothing may be in work, no block
or slot be held, the front have as many tasks and descriptors as behind the warm-up, and neither
process have grown by more than the bounds of ``soak.py``. Any answer with a status of 500 and above
but 503 fails the run.
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
from pathlib import Path
from typing import Any

from record import figure, options, write
from served_steps import children, page, port_of
from soak import GROWTH_BOUND_BYTES, GROWTH_BOUND_OBJECTS
from soak_clients import Clients

REQUESTS = 5_000
PARTS = 10
AT_ONCE = 48
SETTLE_S = 30.0
SETTINGS = (
    "server.model_names=tiny", "engine.max_num_seqs=16", "engine.num_blocks=24",
    "engine.snapshot_slots=8", "engine.max_model_len=2048", "telemetry.level=error",
)  # fmt: skip
HELD = (
    r"deepinfer_requests_running", r"deepinfer_requests_waiting",
    r'deepinfer_kv_cache_blocks\{state="used"\}', r'deepinfer_state_slots\{state="used"\}',
    r"deepinfer_http_requests_waiting",
)  # fmt: skip
"""What must be 0 when nobody asks."""


class Front:
    """The service."""

    def __init__(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("soak_front.py")), "--port", "0"]
        command += [part for text in SETTINGS for part in ("--set", text)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.port = port_of(self.process)
        [self.engine] = children(self.process.pid)

    def held(self) -> dict[str, float]:
        """What the metrics say is held."""
        text = page(f"http://127.0.0.1:{self.port}/metrics")
        found = {name: re.search(rf"^{name} (\S+)$", text, re.M) for name in HELD}
        return {name.replace("\\", ""): float(one.group(1)) for name, one in found.items() if one}

    def state(self) -> dict[str, Any]:
        """Of both processes, as soon as nothing is held or the time to settle is over."""
        until_s = time.monotonic() + SETTLE_S
        while any((held := self.held()).values()) and time.monotonic() < until_s:
            time.sleep(0.2)
        time.sleep(1.0)  # connections that were closed are forgotten
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        front = json.loads(self.process.stdout.readline())
        place = Path(f"/proc/{self.engine}")
        return {
            "held": held,
            **front,
            "resident_bytes": resident_bytes(self.process.pid),
            "engine_resident_bytes": resident_bytes(self.engine),
            "engine_files": len(os.listdir(place / "fd")),
            "engine_threads": len(os.listdir(place / "task")),
        }

    def stop(self) -> int:
        """End it as an operator does; its exit status."""
        self.process.terminate()
        return self.process.wait(timeout=60)


def resident_bytes(process: int) -> int:
    """Resident memory of a process."""
    [kilobytes] = re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    return int(kilobytes) * 1024


def soak(args: Any, front: Front) -> tuple[Clients, dict[str, Any], dict[str, Any]]:
    """All clients; what there was behind the warm-up, and at the end."""
    clients = Clients(front.port, random.Random(args.seed))
    states = []
    for _ in range(PARTS):
        asyncio.run(clients.run(max(1, args.requests // PARTS), AT_ONCE))
        states.append(front.state())
        print(sum(clients.seen.values()), states[-1], file=sys.stderr, flush=True)
    return clients, states[PARTS // 2 - 1], states[-1]


def figures_of(before: dict[str, Any], after: dict[str, Any], answers: Any) -> list[Any]:
    """What grew and what is held, next to the bounds."""
    mb = GROWTH_BOUND_BYTES / 1e6
    grown = {name: after[name] - before[name] for name in after if name != "held"}
    names = ("tasks", "threads", "files", "engine_files", "engine_threads")
    left = {name: grown[name] for name in names}
    front_mb, engine_mb = grown["resident_bytes"] / 1e6, grown["engine_resident_bytes"] / 1e6
    rows = [
        ("held", sum(after["held"].values()), "", 0, {"held": after["held"]}),
        ("left", sum(left.values()), "", 0, left),
        ("front_resident_growth", round(front_mb, 2), "MB", mb, {}),
        ("front_object_growth", grown["objects"], "objects", GROWTH_BOUND_OBJECTS, {}),
        ("engine_resident_growth", round(engine_mb, 2), "MB", mb, {}),
    ]
    return [
        figure(f"service_soak.{name}", value, unit, bound=bound, **extra, **answers)
        for name, value, unit, bound, extra in rows
    ]


def main() -> None:
    """Soak, compare and store."""
    parser = options(__doc__)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    front = Front()
    began_s = time.perf_counter()
    try:
        clients, before, after = soak(args, front)
    finally:
        exit_status = front.stop()
    seen = {f"{kind} {code}": count for (kind, code), count in sorted(clients.seen.items())}
    print(json.dumps({"seen": seen, "exit_status": exit_status}, indent=1), file=sys.stderr)
    answers = {"requests": args.requests, "elapsed_s": round(time.perf_counter() - began_s, 1)}
    figures = figures_of(before, after, answers)
    figures[0] |= {"seen": seen, "exit_status": exit_status}
    write("service_soak.json", figures, is_record=args.record)
    if wrong := [code for _, code in clients.seen if code >= 500 and code != 503]:
        raise SystemExit(f"the service answered with {wrong}")


if __name__ == "__main__":
    main()
