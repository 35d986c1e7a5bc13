"""Do blocks, slots, threads, files and memory return to the start after a long mixture of requests?

``deepinfer_core.testing.soak`` on a random checkpoint of the true architecture, with so few blocks
and slots for snapshots that both make room, and running sequences lose theirs. Every answer is
counted, known answers are compared, and the books of the engine are checked between steps.

Memory is read behind a collection of garbage, without recorded steps (a cache with a limit of its
own) and with what the allocator keeps for itself given back. The first tenth warms up: it fills the
cache's books, the allocator's arenas and torch's caches. From there on resident memory may grow by
``GROWTH_BOUND_BYTES`` and the number of Python objects by ``GROWTH_BOUND_OBJECTS``.
"""

import ctypes
import gc
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from deepinfer_core.engine.late_recordings import LateRecordings
from deepinfer_core.engine.runner import ModelRunner
from deepinfer_core.testing.byte_checkpoint import make_byte_checkpoint
from deepinfer_core.testing.peak_memory import resident_bytes
from deepinfer_core.testing.soak import Soak
from record import figure, options, write

from deepinfer_core import LLM

REQUESTS = 20_000
WARM_UP_SHARE = 10
GROWTH_BOUND_BYTES = 8 << 20
"""A leak of one small object, 100 bytes with its entry in a table, for each of the requests behind
the warm-up would be 1.8 MB, a whole ``Completion`` 15 MB and more. Heaps that are reused in another
order come to rest within a few MB."""
GROWTH_BOUND_OBJECTS = 9_000
"""One object for every second request behind the warm-up: a leak of one a request shows. What comes
and goes is a few thousand: keys and blocks of whatever is cached at the moment."""
ENGINE: dict[str, Any] = {
    "max_num_seqs": 48,
    "max_model_len": 512,
    "max_num_batched_tokens": 1024,
    "num_blocks": 18,
    "snapshot_slots": 8,
}


def settled_bytes() -> int:
    """Resident memory, without garbage and without free pages of the allocator."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return resident_bytes("VmRSS")


def state(driver: Soak | None = None) -> dict[str, int]:
    """What must not grow."""
    if driver is not None:
        runner = driver.faults.runner
        if isinstance(runner, ModelRunner) and isinstance(runner.graphs, LateRecordings):
            runner.graphs.clear()
    resident = settled_bytes()
    return {
        "resident_bytes": resident,
        "objects": len(gc.get_objects()),
        "threads": threading.active_count(),
        "kernel_threads": len(os.listdir("/proc/self/task")),
        "files": len(os.listdir("/proc/self/fd")),
    }


def soak(llm: LLM, requests: int, seed: int) -> tuple[Soak, dict[str, int], dict[str, int]]:
    """Run all requests; what there was behind the warm-up, and at the end."""
    driver = Soak(llm, seed)
    warm_up = requests // WARM_UP_SHARE
    driver.run(warm_up)
    before = state(driver)
    for _ in range(WARM_UP_SHARE - 1):
        driver.run(warm_up)
        print(driver.counts.requests, state(driver), flush=True)
    return driver, before, state(driver)


def _answers(driver: Soak) -> dict[str, object]:
    """What was asked and answered, and what had to make room."""
    counts, batch = driver.counts, driver.llm.engine.batch
    return {
        "requests": counts.requests,
        "answers": dict(counts.answers),
        "left": counts.left,
        "probes": counts.probes,
        "cached_tokens": counts.cached_tokens,
        "replayed_tokens": counts.replayed_tokens,
        "failed_steps": dict(driver.faults.failures),
        "preemptions": batch.preemptions,
        "evicted_snapshots": batch.pages.cache.evicted_snapshots,
    }


def main() -> None:
    """Soak, compare and store."""
    parser = options(__doc__)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make_byte_checkpoint(Path(folder, "bytes"))
        LLM(Path(folder, "bytes"), **ENGINE).close()  # imports, and torch's own threads
        first = state()
        began = time.perf_counter()
        with LLM(Path(folder, "bytes"), **ENGINE) as llm:
            driver, before, after = soak(llm, args.requests, args.seed)
            elapsed_s = time.perf_counter() - began
            answers = _answers(driver)
        del driver, llm
        last = state()
    grown = {name: after[name] - before[name] for name in before}
    mb, bound = grown["resident_bytes"] / 1e6, GROWTH_BOUND_BYTES / 1e6
    objects = grown["objects"]
    figures = [
        figure(
            "soak.resident_growth", round(mb, 2), "MB", bound=round(bound, 2),
            ratio=round(mb / bound, 3), behind_warm_up=before, at_end=after, **answers,
        ),
        figure(
            "soak.object_growth", objects, "objects", bound=GROWTH_BOUND_OBJECTS,
            ratio=round(objects / GROWTH_BOUND_OBJECTS, 3),
        ),
        figure(
            "soak.threads_and_files_left", sum(last[n] - first[n] for n in ("threads", "files")),
            "", bound=0, before_loading=first, after_closing=last,
        ),
        figure("soak.elapsed", round(elapsed_s, 1), "s"),
    ]  # fmt: skip
    write("soak.json", figures, is_record=args.record)


if __name__ == "__main__":
    main()
