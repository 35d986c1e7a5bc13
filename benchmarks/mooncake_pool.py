"""What does a store in a Mooncake pool cost beside the pool's own client, and when parts of it end?

    python benchmarks/mooncake_pool.py [--blocks N] [--runs N] [--record]

Starts a master and three nodes on this machine, so everybody shares its cores, and blocks travel
over the loopback device. Blocks are those of the full model. The client alone moves the same bytes
between memory that is registered with it, without a header, a checksum or a deadline; runs of both
take turns, and a figure is the median. Then a node, and then the master, is killed, and single
calls are timed: of the store, and of the client alone in the same pool.
"""

import ctypes
import hashlib
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from deepinfer_cluster.component import load_library
from deepinfer_cluster.store import MooncakeStore
from deepinfer_cluster.testing.real_pool import LOOPBACK, RealPool, free_port
from deepinfer_core.interfaces.kv_store import BlockGroup, StoreItem
from record import figure, options, write

BLOCK_BYTES = 113_920
BATCH = 64
NODE_BYTES = 1 << 30
FOREVER = float("inf")
NAMESPACE = hashlib.sha256(b"benchmark").digest()
GROUP = BlockGroup(
    name="blocks",
    number_format="bytes",
    layout=NAMESPACE[:16],
    block_tokens=128,
    block_bytes=BLOCK_BYTES,
    reuse="leading",
    replay_tokens=0,
    retention="agent",
)
CALLS_BEHIND = 20
"""Behind the first one that meets what has ended."""


class Alone:
    """The pool's own client, on memory for one batch."""

    def __init__(self, pool: RealPool) -> None:
        library = load_library(replicas=1)
        self.client, self._config = library.new_client(), library.put_config
        address = f"{LOOPBACK}:{free_port()}"
        master = pool.master_address
        if self.client.setup(address, "P2PHANDSHAKE", 0, 0, "tcp", "", master) != 0:
            raise SystemExit("the pool cannot be joined")
        self._memory = (ctypes.c_char * (BATCH * BLOCK_BYTES))()
        base = ctypes.addressof(self._memory)
        self.client.register_buffer(base, len(self._memory))
        self._places = [base + number * BLOCK_BYTES for number in range(BATCH)]

    def names(self, blocks: int) -> list[str]:
        return [f"alone/{number}" for number in range(blocks)]

    def put(self, blocks: int) -> Counter[int]:
        return self._each(blocks, self._put)

    def get(self, blocks: int) -> Counter[int]:
        return self._each(blocks, self.client.batch_get_into)

    def clear(self, blocks: int) -> None:
        self.client.batch_remove(self.names(blocks), True)

    def _put(self, names: list[str], places: list[int], sizes: list[int]) -> list[int]:
        return self.client.batch_put_from(names, places, sizes, self._config)

    def _each(self, blocks: int, call: Callable[..., list[int]]) -> Counter[int]:
        codes: Counter[int] = Counter()
        names = self.names(blocks)
        for start in range(0, blocks, BATCH):
            some = names[start : start + BATCH]
            codes.update(call(some, self._places[: len(some)], [BLOCK_BYTES] * len(some)))
        return codes


class Stored:
    """The store, with memory for all blocks."""

    def __init__(self, store: MooncakeStore, blocks: int) -> None:
        self.store = store
        self.keys = [hashlib.sha256(b"%d" % number).digest() for number in range(blocks)]
        self._rooms = [bytearray(BLOCK_BYTES) for _ in range(blocks)]
        self._items = [
            StoreItem(key=key, data=key * (BLOCK_BYTES // 32), namespace=NAMESPACE, depth=number)
            for number, key in enumerate(self.keys)
        ]

    def put(self, blocks: int) -> Counter[str]:
        found = self.store.store("blocks", self._items[:blocks], deadline_s=FOREVER)
        return Counter(one.status for one in found)

    def get(self, blocks: int) -> Counter[str]:
        keys, rooms = self.keys[:blocks], self._rooms[:blocks]
        found = self.store.load("blocks", keys, rooms, deadline_s=FOREVER)
        for key, room, one in zip(keys, rooms, found, strict=True):
            if one.status == "hit" and room[:32] != key:
                raise SystemExit("a wrong block")
        return Counter(one.status for one in found)

    def find(self, keys: list[bytes]) -> None:
        self.store.find("blocks", keys, deadline_s=FOREVER)


def took_s(call: Callable[[], Any]) -> float:
    """Seconds of one call."""
    began_s = time.perf_counter()
    call()
    return time.perf_counter() - began_s


def rates(alone: Alone, stored: Stored, blocks: int, runs: int) -> list[dict[str, object]]:
    """Bytes a second of both, in turns."""
    seconds: dict[str, list[float]] = {
        name: [] for name in ("alone put", "put", "alone get", "get")
    }
    for _ in range(runs):
        alone.clear(blocks)
        stored.store.drop()
        seconds["alone put"].append(took_s(lambda: alone.put(blocks)))
        seconds["put"].append(took_s(lambda: stored.put(blocks)))
        seconds["alone get"].append(took_s(lambda: alone.get(blocks)))
        seconds["get"].append(took_s(lambda: stored.get(blocks)))
    figures = []
    for name, words in (("put", "stored"), ("get", "loaded and checked")):
        ours, peers = (
            blocks * BLOCK_BYTES / 1e6 / statistics.median(seconds[one])
            for one in (name, f"alone {name}")
        )
        figures.append(
            figure(
                f"mooncake: blocks {words}, {BATCH} in a batch",
                round(ours, 1),
                "MB/s",
                peer={"name": "the pool's client alone", "value": round(peers, 1)},
                ratio=round(ours / peers, 3),
            )
        )
    return figures


def finds(stored: Stored, runs: int) -> list[dict[str, object]]:
    """Seconds to look for a prefix, all of it there or not."""
    figures = []
    for count in (602, 8192):
        keys = [hashlib.sha256(b"find %d" % number).digest() for number in range(count)]
        found_s = statistics.median([took_s(partial(stored.find, keys)) for _ in range(runs)])
        name = f"mooncake: looking for {count} blocks"
        figures.append(figure(name, round(found_s * 1e3, 2), "ms"))
    return figures


def behind(name: str, stored: Stored, alone: Alone, blocks: int) -> list[dict[str, object]]:
    """Seconds of calls that load a batch behind the end of something."""
    first_s = took_s(lambda: stored.get(blocks))
    next_s = [took_s(lambda: stored.get(blocks)) for _ in range(CALLS_BEHIND)]
    alone.get(blocks)
    alone_s = took_s(lambda: alone.get(blocks))
    seen = dict(stored.get(blocks))
    return [
        figure(f"mooncake: first load behind the end of {name}", round(first_s * 1e3, 1), "ms"),
        figure(
            f"mooncake: median of {CALLS_BEHIND} loads behind it",
            round(statistics.median(next_s) * 1e3, 2),
            "ms",
            peer={"name": "the pool's client alone", "value": round(alone_s * 1e3, 1)},
            slowest_ms=round(max(next_s) * 1e3, 2),
            outcomes=seen,
        ),
    ]


def main() -> None:
    """Measure, and write it down."""
    parser = options(__doc__)
    parser.add_argument("--blocks", type=int, default=1024, help="blocks of a run")
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pool = RealPool(Path(folder), nodes=3, node_bytes=NODE_BYTES)
        try:
            store = pool.store(retry_s=0.5)
            store.open([GROUP])
            stored, alone = Stored(store, given.blocks), Alone(pool)
            figures = rates(alone, stored, given.blocks, given.runs) + finds(stored, given.runs)
            pool.kill(pool.nodes[0])
            figures += behind("a node of three", stored, alone, BATCH)
            pool.kill(pool.master)
            figures += behind("the master", stored, alone, BATCH)
            store.close()
        finally:
            pool.close()
    write("mooncake_pool.json", figures, is_record=given.record)


if __name__ == "__main__":
    main()
