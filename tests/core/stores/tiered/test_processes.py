"""What has a slow tier when the process of its store was killed while blocks were moved?"""

import math
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PIECE, PIECES = 5, 60

TEXT = """
import hashlib, math, sys
from dataclasses import replace
from pathlib import Path
from deepinfer_core.interfaces.kv_store import BlockGroup, StoreItem
from deepinfer_core.stores.disk.store import DiskStore
from deepinfer_core.stores.memory import MemoryStore
from deepinfer_core.stores.retention import Limits
from deepinfer_core.stores.tiered.store import TieredStore
from deepinfer_core.stores.tiered.tiers import Tier

group = BlockGroup(
    name="blocks", number_format="bytes", layout=bytes(16), block_tokens=128, block_bytes=3888,
    reuse="leading", replay_tokens=0, retention="agent",
)
limits = Limits(capacity_bytes=1000 * 4096, retention_s={"agent": 86400.0})

def disk_in(folder):
    return DiskStore(Path(folder), replace(limits, age_step_s=3600.0), durable=False)

def item(depth):
    key = hashlib.sha256(b"%d" % depth).digest()
    data = hashlib.shake_128(key).digest(group.block_bytes)
    return StoreItem(key=key, data=data, namespace=bytes(32), depth=depth)
"""

WRITER = f"""{TEXT}
disk = disk_in(sys.argv[1])
store = TieredStore([Tier(name="memory", store=MemoryStore(limits)), Tier(name="disk", store=disk)])
store.open([group])
for start in range(0, {PIECE * PIECES}, {PIECE}):
    piece = [item(start + number) for number in range({PIECE})]
    outcomes = store.store("blocks", piece, deadline_s=math.inf)
    assert all(one.status == "stored" for one in outcomes)
    print(start, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("round_number", range(3))
def test_a_killed_process_leaves_beginnings_of_texts(tmp_path: Path, round_number: int) -> None:
    draw = random.Random(f"killed after so many pieces, round {round_number}")
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for _ in range(draw.randint(1, PIECES)):
            assert process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    here: dict[str, Any] = {}
    exec(TEXT, here)
    disk, items = here["disk_in"](tmp_path), [here["item"](n) for n in range(PIECE * PIECES)]
    disk.open([here["group"]])
    outcomes = disk.find("blocks", [one.key for one in items], deadline_s=math.inf)
    found = [one.status for one in outcomes]
    there = found.count("hit")
    assert found == ["hit"] * there + ["miss"] * (len(items) - there)
    buffers = [bytearray(3888) for _ in range(there)]
    disk.load("blocks", [one.key for one in items[:there]], buffers, deadline_s=math.inf)
    assert buffers == [one.data for one in items[:there]]
    disk.close()
