"""What is left when a store's process is killed, its files are cut off, or their medium is full?

Each of these happens to a process of its own, because some of it may end one. What had been stored
before must come back from another process, or be said not to be there.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

from deepinfer_core.interfaces.kv_store import KvStore
from deepinfer_core.testing.store_faults.blocks import WrongBytes, loaded, numbered
from deepinfer_core.testing.store_faults.damage import FaultReport
from deepinfer_core.testing.store_faults.targets import files_of, make_target
from deepinfer_core.testing.store_faults.victim import BATCH_BLOCKS
from deepinfer_core.testing.store_groups import BLOCKS, FOREVER

__all__ = ["cut_off", "fill_medium", "kill_writers"]

_LOOKED_AT = 200
"""Blocks of all that a killed writer stored which are read again each time."""

_KEPT = 400
"""Blocks behind which a store that is killed again and again begins anew."""

_CUT_BLOCKS = 120


def kill_writers(name: str, folder: Path, count: int, seed: int) -> FaultReport:
    """Kill the process that writes so many times; what it had stored is there.

    Raises:
        AssertionError: a block that was stored is gone, or half a batch is there.
    """
    draw, report, first = random.Random(seed), FaultReport(), 0
    store = make_target(name, folder).store
    for number in range(count):
        if first > _KEPT:
            shutil.rmtree(folder)
            first = 0
        first = _killed(name, store, folder, first, draw)
        report.injected["SIGKILL"] += 1
        report.outcomes["kept"] += 1
        assert first, number
    return report


def _killed(name: str, store: KvStore, folder: Path, first: int, draw: random.Random) -> int:
    """Number of the first block that is not there, as a store in this process sees it."""
    with _victim(name, folder, "write", first) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(draw.randint(1, 12))]
        writer.send_signal(signal.SIGKILL)
        lines += writer.stdout.readlines()
    end = first
    for line in lines:
        at, statuses = json.loads(line)
        assert statuses == ["stored"], statuses
        end = at + BATCH_BLOCKS
    with closing(store):
        store.open([BLOCKS])
        known = [numbered(one) for one in draw.sample(range(end), min(_LOOKED_AT, end))]
        assert {one.status for one in loaded(store, known)} <= {"hit"}, "a stored block is gone"
        behind = [numbered(number) for number in range(end, end + BATCH_BLOCKS)]
        statuses = {one.status for one in loaded(store, behind)}
        assert statuses in ({"hit"}, {"miss"}), "half a batch is there"
    return end + BATCH_BLOCKS if statuses == {"hit"} else end


def cut_off(name: str, folder: Path, count: int, seed: int) -> FaultReport:
    """Cut a file off at any place so many times, each time one of a whole store.

    Raises:
        WrongBytes: something else came back than had been stored.
    """
    draw, report = random.Random(seed), FaultReport()
    whole = folder / "whole"
    store = make_target(name, whole).store
    with closing(store):
        store.open([BLOCKS])
        items = [numbered(number) for number in range(_CUT_BLOCKS)]
        outcomes = store.store("blocks", items, deadline_s=FOREVER)
        assert {one.status for one in outcomes} == {"stored"}
    for number in range(count):
        cut = folder / f"cut {number}"
        shutil.copytree(whole, cut)
        file = draw.choice(
            [path for path in files_of(cut) if path.stat().st_size > BLOCKS.block_bytes]
        )
        os.truncate(file, draw.randrange(file.stat().st_size))
        report.injected["cut off"] += 1
        report.outcomes.update(_outcomes_of(name, cut))
        shutil.rmtree(cut)
    return report


def _outcomes_of(name: str, folder: Path) -> Counter[str]:
    """Blocks by outcome, as a process of its own sees them; ``ended`` if that dies."""
    with _victim(name, folder, "read", _CUT_BLOCKS) as reader:
        said, problem = reader.communicate()
    if reader.returncode > 0:
        raise WrongBytes(problem)
    return Counter(json.loads(said)) if said else Counter({"ended": _CUT_BLOCKS})


def fill_medium(name: str, folder: Path, count: int, seed: int) -> FaultReport:
    """Let a medium be full so many times, and have room again.

    Raises:
        WrongBytes: something else came back than had been stored, or nothing can be stored again.
    """
    report = FaultReport()
    with _victim(name, folder, "full", seed, count) as writer:
        said, problem = writer.communicate()
    if writer.returncode:
        raise WrongBytes(f"{writer.returncode}: {problem}")
    for line in said.splitlines():
        report.injected["full"] += 1
        report.outcomes.update(json.loads(line))
    return report


def _victim(name: str, folder: Path, *arguments: object) -> subprocess.Popen[str]:
    module = "deepinfer_core.testing.store_faults.victim"
    return subprocess.Popen(
        [sys.executable, "-m", module, name, str(folder), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
