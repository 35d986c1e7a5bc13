"""Program: ``deepinfer serve`` that can be asked what it holds.

Takes the arguments of ``deepinfer serve``. Each line on standard input is answered with a JSON
object on standard output: resident memory behind a collection of garbage and with what the
allocator keeps given back, Python objects, tasks that have not ended, threads and descriptors.
"""

import asyncio
import ctypes
import gc
import json
import os
import sys
import threading

from deepinfer_core.cli import main as deepinfer
from deepinfer_core.testing.peak_memory import resident_bytes


def state() -> dict[str, int]:
    """What must not grow."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    # The service freezes what it starts with, its own tasks among it.
    gc.unfreeze()
    objects = gc.get_objects()
    return {
        "resident_bytes": resident_bytes("VmRSS"),
        "objects": len(objects),
        "tasks": sum(isinstance(one, asyncio.Task) and not one.done() for one in objects),
        "threads": len(os.listdir("/proc/self/task")),
        "files": len(os.listdir("/proc/self/fd")),
    }


def answer() -> None:
    """Answer until standard input ends."""
    for _ in sys.stdin:
        print(json.dumps(state()), flush=True)


if __name__ == "__main__":
    threading.Thread(target=answer, daemon=True).start()
    raise SystemExit(deepinfer(["serve", *sys.argv[1:]]))
