"""Does a service give everything back after thousands of clients, many of whom went away?

The shipped checkpoint behind ``deepinfer serve``, with so few blocks and places that requests wait
and lose what they hold, and the clients of ``testing.crowd``, many at once. The first half warms
up: meanwhile the engine records steps of every size, and its caches fill. Afterwards nothing may be
in work, no block or slot be held, every accepted request have ended, the front have as many tasks
and both processes as many descriptors as behind the warm-up, and neither have grown by more than
the bounds of ``soak.py``. Any answer with a status of 500 and above but 503 fails the run.

Then the service is told to stop while more requests are in work than end in the time to drain, and
others still come. Everything that was admitted must come to its end or to an error that says so,
and both processes be gone within the time that ``docs/serving.md`` names.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter
from typing import Any

from deepinfer_core.testing.answer_ends import ending_of
from deepinfer_core.testing.asked_service import AskedService
from deepinfer_core.testing.crowd import Crowd
from record import figure, options, write
from soak import GROWTH_BOUND_BYTES, GROWTH_BOUND_OBJECTS

REQUESTS = 6_000
WANTED_GONE = 1_000
PARTS = 10
AT_ONCE = 48
DRAIN_S = 5.0
GRACE_S = DRAIN_S + 5.0
"""The time to drain, and what clients have to take the end of their answers."""
ADMITTED = 120
MOST_TOKENS = 300
NEWCOMERS_PAUSE_S = 0.05
SETTINGS = (
    "server.model_names=tiny", "engine.max_num_seqs=16", "engine.num_blocks=24",
    "engine.snapshot_slots=8", "engine.max_model_len=2048", "telemetry.level=error",
    f"server.drain_seconds={DRAIN_S}",
)  # fmt: skip
GONE = "deepinfer_http_clients_gone_total"
ACCEPTED = "deepinfer_requests_total"
FINISHED = "deepinfer_requests_finished_total"


def state(service: AskedService) -> dict[str, Any]:
    """What is held when nobody asks."""
    held = service.held()
    time.sleep(1.0)  # connections that were closed are forgotten
    samples = service.metrics()
    ended = sum(value for name, value in samples.items() if name.startswith(FINISHED))
    books = {"accepted": samples[ACCEPTED], "ended": ended, "clients_gone": samples[GONE]}
    return {"held": held, "books": books, **service.state()}


def soak(args: Any, service: AskedService, crowd: Crowd) -> list[dict[str, Any]]:
    """All clients; what there was behind each part of them."""
    states = []
    for _ in range(PARTS):
        asyncio.run(crowd.run(max(1, args.requests // PARTS), AT_ONCE))
        states.append(state(service))
        print(sum(crowd.seen.values()), states[-1], file=sys.stderr, flush=True)
    return states


async def stop_under_load(service: AskedService, crowd: Crowd) -> dict[str, Any]:
    """Admit many requests, send the signal to stop, and see how each of them ends."""
    tokens = [crowd.source.randint(1, MOST_TOKENS) for _ in range(ADMITTED)]
    answers = crowd.admitted(tokens)
    unanswered, in_work = ADMITTED, 0.0
    while in_work < unanswered:
        unanswered = sum(not one.done() for one in answers)
        in_work = await asyncio.to_thread(service.admitted)
    service.process.send_signal(signal.SIGTERM)
    began_s = time.monotonic()
    newcomers: Counter[int] = Counter()
    while service.process.poll() is None:
        newcomers[await crowd.newcomer()] += 1
        await asyncio.sleep(NEWCOMERS_PAUSE_S)
    elapsed_s = time.monotonic() - began_s
    ended = await asyncio.gather(*answers)
    return {
        "admitted": ADMITTED,
        "in_work_at_the_signal": int(in_work),
        "ends": _sorted(Counter(f"{path} {ending_of(answer)}" for path, answer in ended)),
        "newcomers": _sorted(newcomers),
        "exit_status": service.process.returncode,
        "engine_is_left": str(service.engine) in os.listdir("/proc"),
        "elapsed_s": round(elapsed_s, 2),
    }


def _sorted(counts: Counter[Any]) -> dict[str, int]:
    return {str(name): count for name, count in sorted(counts.items())}


def figures_of(before: dict[str, Any], after: dict[str, Any], soaked: Any) -> list[Any]:
    """What grew and what is held, next to the bounds."""
    mb = GROWTH_BOUND_BYTES / 1e6
    grown = {name: after[name] - before[name] for name in after if name not in ("held", "books")}
    names = ("tasks", "threads", "files", "engine_files", "engine_threads")
    left = {name: grown[name] for name in names}
    at_end = {name: after[name] for name in names}
    front_mb, engine_mb = grown["resident_bytes"] / 1e6, grown["engine_resident_bytes"] / 1e6
    books = after["books"]
    rows = [
        ("clients_gone", books["clients_gone"], "", WANTED_GONE, {}),
        ("held", sum(after["held"].values()), "", 0, {"held": after["held"]}),
        ("unfinished", books["accepted"] - books["ended"], "", 0, {"books": books}),
        ("left", sum(left.values()), "", 0, {"grown": left, "at_end": at_end}),
        ("front_resident_growth", round(front_mb, 2), "MB", mb, {}),
        ("front_object_growth", grown["objects"], "objects", GROWTH_BOUND_OBJECTS, {}),
        ("engine_resident_growth", round(engine_mb, 2), "MB", mb, {}),
    ]
    return [
        figure(f"service_soak.{name}", value, unit, bound=bound, **extra, **soaked)
        for name, value, unit, bound, extra in rows
    ]


def stop_figures(stopped: dict[str, Any]) -> list[Any]:
    """How admitted requests ended after the signal, and when the service did."""
    cut = sum(count for name, count in stopped["ends"].items() if name.endswith(" cut"))
    return [
        figure("service_soak.cut_by_the_signal", cut, "", bound=0, **stopped),
        figure("service_soak.end_after_the_signal", stopped["elapsed_s"], "s", bound=GRACE_S),
    ]


def main() -> None:
    """Soak, compare, stop and store."""
    parser = options(__doc__)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    began_s = time.perf_counter()
    with AskedService(SETTINGS) as service:
        crowd = Crowd(service.port, random.Random(args.seed))
        states = soak(args, service, crowd)
        soaked = {"requests": args.requests, "elapsed_s": round(time.perf_counter() - began_s, 1)}
        stopped = asyncio.run(stop_under_load(service, crowd))
    figures = figures_of(states[PARTS // 2 - 1], states[-1], soaked)
    figures[0]["seen"] = {
        f"{kind} {path} {status}": count
        for (kind, path, status), count in sorted(crowd.seen.items())
    }
    figures += stop_figures(stopped)
    write("service_soak.json", figures, is_record=args.record)
    if wrong := sorted({status for *_, status in crowd.seen if status >= 500 and status != 503}):
        raise SystemExit(f"the service answered with {wrong}")


if __name__ == "__main__":
    main()
