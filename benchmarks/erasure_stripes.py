"""What would be gained if several blocks were coded together, at most?

``core.erasure`` cuts every block on its own. Here a stripe of 8 or 16 blocks is one block as many
times as long, stored and loaded like any other: what that costs is the least that stripes could
cost, since nobody has to find out in which stripe a block is. Twelve children each of memory, disk
and ``threefs.posix``; 64 blocks of the full model a call. Rates are of processor time, the best of
several rounds in which all take part. ``reads`` are calls of the operating system, ``alone`` is a
load of one block, whose whole stripe is read; ``pointers`` what it takes to store three small
records a block that say where it is, so many as survive two lost children.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from deepinfer_core.interfaces.kv_store import BlockGroup, KvStore, StoreItem
from deepinfer_core.stores.disk.store import DiskStore
from deepinfer_core.stores.erasure.isal import IsalCodec
from deepinfer_core.stores.erasure.store import ErasureStore
from deepinfer_core.stores.memory import MemoryStore
from deepinfer_core.stores.retention import Limits
from deepinfer_threefs.medium import Moved, PosixMedium, Span
from deepinfer_threefs.place import StorePlace
from deepinfer_threefs.store import ThreefsStore
from record import figure, options, write

BLOCK = BlockGroup(
    name="blocks",
    number_format="bytes",
    layout=bytes(16),
    block_tokens=128,
    block_bytes=113_920,
    reuse="leading",
    replay_tokens=0,
    retention="agent",
)
BLOCKS, AT_ONCE, POINTER_BYTES, COPIES = 512, 64, 128, 3
LIMITS = Limits(
    capacity_bytes=1 << 27, retention_s={"agent": 1e6}, age_step_s=3600.0, refresh_ratio=1 / 16
)
FAR_S = 1e8


class CountedMedium(PosixMedium):
    """Counts what it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def read(self, spans: Sequence[Span], deadline_s: float) -> Iterator[Moved]:
        """Each span is a call."""
        self.reads += len(spans)
        return super().read(spans, deadline_s)


def child(kind: str, folder: Path, medium: PosixMedium) -> KvStore:
    """A store of some kind."""
    if kind == "core.memory":
        return MemoryStore(LIMITS)
    if kind == "core.disk":
        return DiskStore(folder, LIMITS, durable=False)
    place = StorePlace(folder=str(folder), durable=False, refresh_s=0)
    return ThreefsStore(place, LIMITS, medium=medium)


def items_of(group: BlockGroup, count: int) -> list[StoreItem]:
    """Blocks by their numbers; all of them have the same bytes."""
    data = bytes(range(256)) * (-(-group.block_bytes // 256))
    return [
        StoreItem(
            key=sha256(b"%d" % number).digest(),
            data=data[: group.block_bytes],
            namespace=bytes(32),
            depth=number,
        )
        for number in range(count)
    ]


def stripes(kind: str, blocks: int) -> dict[str, float]:
    """Seconds and bytes for each block in stripes of so many."""
    group = replace(BLOCK, block_bytes=BLOCK.block_bytes * blocks)
    items, step = items_of(group, BLOCKS // blocks), AT_ONCE // blocks
    media = [CountedMedium() for _ in range(12)]
    room = [bytearray(group.block_bytes) for _ in range(step)]
    with TemporaryDirectory() as folder:
        named = [
            (str(number), child(kind, Path(folder) / str(number), medium))
            for number, medium in enumerate(media)
        ]
        store = ErasureStore(named, IsalCodec(10, 2))
        store.open([group])
        batches = [items[at : at + step] for at in range(0, len(items), step)]
        since_s = time.process_time()
        for batch in batches:
            outcomes = store.store("blocks", batch, deadline_s=FAR_S)
            assert {one.status for one in outcomes} == {"stored"}
        store_s = time.process_time() - since_s
        since_s = time.process_time()
        for batch in batches:
            keys = [item.key for item in batch]
            outcomes = store.load("blocks", keys, room, deadline_s=FAR_S)
            assert {one.status for one in outcomes} == {"hit"}
        load_s = time.process_time() - since_s
        reads = sum(one.reads for one in media)
        since_s = time.process_time()
        for item in items[:32]:
            store.load("blocks", [item.key], room[:1], deadline_s=FAR_S)
        alone_s = (time.process_time() - since_s) / 32
        used_bytes = sum(one.report().used_bytes for _, one in named)
        store.close()
    found = {"store_s": store_s, "load_s": load_s, "reads": reads, "used_bytes": used_bytes}
    return {**{name: value / BLOCKS for name, value in found.items()}, "alone_s": alone_s}


def pointers(kind: str) -> dict[str, float]:
    """Seconds and bytes of small records, for each block."""
    group = replace(BLOCK, block_bytes=POINTER_BYTES)
    items = items_of(group, BLOCKS)
    with TemporaryDirectory() as folder:
        stores = [child(kind, Path(folder) / str(one), PosixMedium()) for one in range(COPIES)]
        since_s = time.process_time()
        for store in stores:
            store.open([group])
            for at in range(0, BLOCKS, AT_ONCE):
                store.store("blocks", items[at : at + AT_ONCE], deadline_s=FAR_S)
        store_s = time.process_time() - since_s
        used_bytes = sum(store.report().used_bytes for store in stores)
        for store in stores:
            store.close()
    return {"store_s": store_s / BLOCKS, "used_bytes": used_bytes / BLOCKS}


def main() -> None:
    """Measure, print and store."""
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    figures = []
    for kind in ("core.memory", "core.disk", "threefs.posix"):
        best: dict[int, dict[str, float]] = {}
        for _ in range(args.rounds):
            for blocks in (0, 1, 8, 16):
                found = stripes(kind, blocks) if blocks else pointers(kind)
                old = best.get(blocks, found)
                best[blocks] = {name: min(old[name], value) for name, value in found.items()}
        for blocks in (1, 8, 16):
            one, known = best[blocks], best[1]
            figures.append(
                figure(
                    f"erasure.stripes[children={kind},blocks={blocks}]",
                    round(BLOCK.block_bytes / one["load_s"] / 1e6),
                    "MB/s of load",
                    peer={
                        "name": "each block on its own",
                        "value": round(BLOCK.block_bytes / known["load_s"] / 1e6),
                    },
                    ratio=round(known["load_s"] / one["load_s"], 2),
                    store_mb_per_s=round(BLOCK.block_bytes / one["store_s"] / 1e6),
                    reads=round(one["reads"], 1),
                    bytes_of_a_block=round(one["used_bytes"]),
                    alone_us=round(one["alone_s"] * 1e6),
                    pointers_us=round(best[0]["store_s"] * 1e6),
                    bytes_of_pointers=round(best[0]["used_bytes"]),
                )
            )
    write("erasure_stripes.json", figures, is_record=args.record)


if __name__ == "__main__":
    main()
