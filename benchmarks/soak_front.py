"""Program: ``deepinfer serve`` that can be asked what it holds.

Takes the arguments of ``deepinfer serve``. Each line on standard input is answered with a JSON
object on standard output: Python objects behind a collection of garbage, tasks that have not ended,
threads and descriptors. What the allocator kept is given back by then, so that whoever asked may
look at the process's resident memory.
"""

import asyncio
import ctypes
import gc
import json
import os
import sys
import threading

from deepinfer_core.cli import main as deepinfer


def state() -> dict[str, int]:
    """What must not grow."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    # The service freezes what it starts with, its own tasks among it.
    gc.unfreeze()
    objects = gc.get_objects()
    return {
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
