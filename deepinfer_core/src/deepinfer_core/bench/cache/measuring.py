"""What does a store reach of what a bare map and a bare LMDB reach in the same minutes?

Blocks have the size of the full model's unless told otherwise, and lie in memory that is warm.
They are stored by a thread that does nothing else, as in a fetcher. Loads are prefixes of 602
blocks, of 77,000 tokens, in random order of the store, into slots that are shared memory. Runs of
store and reference take turns; a rate is the median of its runs. All blocks are dropped at the end.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from deepinfer_core.bench.cache.raw import RawLmdb, RawMap, raw_lmdb, raw_map
from deepinfer_core.bench.cache.turns import alternately, each, elsewhere, medians, seconds_of
from deepinfer_core.bench.figures import Figure, Reference
from deepinfer_core.errors import EngineError
from deepinfer_core.interfaces.kv_store import BlockGroup, KvStore, Outcome, StoreItem
from deepinfer_core.stores.fetcher.gallop import match
from deepinfer_core.stores.records import pack_record

__all__ = ["CachePlan", "bench_groups", "measure_store"]

PREFIX_BLOCKS = 602
LONG_CHAIN_BLOCKS = 8192
_FOREVER = math.inf
_NAMESPACE = hashlib.sha256(b"deepinfer bench cache").digest()
_SPARE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePlan:
    """What is measured.

    Attributes:
        store: name of the component.
        block_bytes: of a block.
        prefixes: that are stored and loaded, of 602 blocks each.
        batch_blocks: blocks of a call that stores.
        repeats: runs.
        durable: whether commits of the bare LMDB wait for the disk, as those of the store do.
        seed: of the order of blocks.
    """

    store: str
    block_bytes: int
    prefixes: int
    batch_blocks: int
    repeats: int
    durable: bool
    seed: int = 0

    @property
    def blocks(self) -> int:
        """That are stored."""
        return self.prefixes * PREFIX_BLOCKS

    def name(self, figure: str, **load: object) -> str:
        """Of a figure, with its load."""
        words = {"store": self.store, "block": self.block_bytes, **load}
        return f"cache.{figure}[{','.join(f'{key}={value}' for key, value in words.items())}]"


def bench_groups(block_bytes: int) -> tuple[BlockGroup, BlockGroup]:
    """Blocks to be copied, and small ones that are only looked for."""
    return tuple(  # type: ignore[return-value]
        BlockGroup(
            name=name,
            number_format="bytes",
            layout=hashlib.sha256(f"bench {name} {size}".encode()).digest()[:16],
            block_tokens=128,
            block_bytes=size,
            reuse="leading",
            replay_tokens=0,
            retention="agent",
        )
        for name, size in (("bench", block_bytes), ("bench_small", 64))
    )


def measure_store(store: KvStore, plan: CachePlan, scratch: Path) -> list[Figure]:
    """Measure an open store, and what it is compared with.

    Args:
        store: open for ``bench_groups``.
        plan: what is measured.
        scratch: a folder for the files that it is compared with, on the disk of the store.

    Raises:
        EngineError: the store did not keep what it was given.
    """
    group = store.groups["bench"]
    items = [_item(group, number) for number in range(plan.blocks)]
    records = [pack_record(group, item, 0.0) for item in items]
    map_bytes = sum(map(len, records)) * 5 // 4 + _SPARE_BYTES
    try:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(dir=scratch)))
            bare = stack.enter_context(
                raw_lmdb(folder, map_bytes, batch_blocks=plan.batch_blocks, durable=plan.durable)
            )
            flat = stack.enter_context(raw_map(folder, records))
            return [
                *_stored(store, plan, items, bare, records),
                *_loaded(store, plan, [item.key for item in items], bare, flat),
                *_found(store, plan, bare),
            ]
    finally:
        store.drop(_NAMESPACE)


def _item(group: BlockGroup, number: int) -> StoreItem:
    key = hashlib.sha256(f"{group.name} {number}".encode()).digest()
    data = os.urandom(group.block_bytes)
    return StoreItem(key=key, data=data, namespace=_NAMESPACE, depth=number)


def _stored(
    store: KvStore,
    plan: CachePlan,
    items: Sequence[StoreItem],
    bare: RawLmdb,
    records: Sequence[bytes],
) -> list[Figure]:
    """Into room that nothing has been in, a prefix at a time; then all of it in place of itself."""
    keys = [item.key for item in items]
    new_s: dict[str, list[float]] = {"ours": [], "lmdb": []}
    with elsewhere() as run:

        def keep(some: Sequence[StoreItem]) -> None:
            run(_keep, store, "bench", some, plan.batch_blocks)

        for start in range(0, plan.blocks, PREFIX_BLOCKS):
            one = slice(start, start + PREFIX_BLOCKS)
            new_s["ours"].append(seconds_of(keep, items[one]))
            new_s["lmdb"].append(seconds_of(run, bare.put, keys[one], records[one]))
        again_s = alternately(
            plan.repeats,
            ours=lambda: keep(items),
            lmdb=lambda: run(bare.put, keys, records),
            before={"ours": lambda: store.drop(_NAMESPACE), "lmdb": bare.clear},
        )
    load = {"batch": plan.batch_blocks, "durable": plan.durable}
    return [
        Figure(
            name=plan.name(name, **load),
            value=blocks * plan.block_bytes / took_s["ours"],
            unit="B/s",
            reference=Reference(
                kind="bound",
                name=f"LMDB puts of the same records, {place}",
                value=blocks * plan.block_bytes / took_s["lmdb"],
            ),
        )
        for name, place, blocks, took_s in (
            ("store", "the file grows", PREFIX_BLOCKS, medians(new_s)),
            ("store.again", "pages are used again", plan.blocks, again_s),
        )
    ]


def _loaded(
    store: KvStore, plan: CachePlan, keys: Sequence[bytes], bare: RawLmdb, flat: RawMap
) -> list[Figure]:
    order = list(range(plan.blocks))
    random.Random(plan.seed).shuffle(order)
    starts = range(0, plan.blocks, PREFIX_BLOCKS)
    numbers = [order[start : start + PREFIX_BLOCKS] for start in starts]
    chains = [[keys[number] for number in one] for one in numbers]
    with _slots(PREFIX_BLOCKS, plan.block_bytes) as places:
        took_s = alternately(
            plan.repeats,
            load=each(chains, lambda chain: _load(store, chain, places)),
            borrow=each(chains, lambda chain: _borrow(store, chain)),
            copy=each(numbers, lambda one: flat.copy(one, places)),
            copy_and_check=each(numbers, lambda one: flat.copy_and_check(one, places)),
            check=each(numbers, flat.check),
            lmdb=each(chains, lambda chain: bare.copy(chain, places)),
        )
    copied = plan.blocks * plan.block_bytes
    rates = {name: copied / seconds for name, seconds in took_s.items()}
    copy = Reference(kind="bound", name="copied from a flat map", value=rates["copy"])
    check = Reference(kind="bound", name="checksums in a flat map", value=rates["check"])
    both = Reference(
        kind="bound", name="copied from a flat map, copies checked", value=rates["copy_and_check"]
    )
    load = {"prefix": PREFIX_BLOCKS}
    return [
        Figure(name=plan.name(name, **load), value=rates[run], unit="B/s", reference=reference)
        for name, run, reference in (
            ("load", "load", copy),
            ("load.beside_checks", "load", both),
            ("borrow", "borrow", check),
            ("flat.copy_and_check", "copy_and_check", copy),
            ("lmdb.copy", "lmdb", copy),
        )
    ]


@contextmanager
def _slots(count: int, size_bytes: int) -> Iterator[list[memoryview]]:
    """Shared memory, for the time of a ``with``."""
    with mmap.mmap(-1, count * size_bytes) as memory, ExitStack() as stack:
        view = stack.enter_context(memoryview(memory))
        yield [
            stack.enter_context(view[at : at + size_bytes])
            for at in range(0, len(view), size_bytes)
        ]


def _found(store: KvStore, plan: CachePlan, bare: RawLmdb) -> list[Figure]:
    items = [_item(store.groups["bench_small"], number) for number in range(LONG_CHAIN_BLOCKS)]
    bare.clear()
    bare.put([one.key for one in items], [bytes(one.data) for one in items])
    _keep(store, "bench_small", items, plan.batch_blocks)
    figures = []
    for count in (PREFIX_BLOCKS, LONG_CHAIN_BLOCKS):
        keys = [one.key for one in items[:count]]
        took_s = alternately(
            plan.repeats,
            find=lambda keys=keys: _find(store, keys),  # type: ignore[misc]
            match=lambda keys=keys: _match(store, keys),  # type: ignore[misc]
            lmdb=lambda keys=keys: bare.find(keys),  # type: ignore[misc]
        )
        bound = Reference(kind="bound", name="LMDB gets of all keys", value=1 / took_s["lmdb"])
        figures += [
            Figure(
                name=plan.name(name, keys=count),
                value=1 / took_s[name],
                unit="chains/s",
                reference=bound,
            )
            for name in ("find", "match")
        ]
    return figures


def _keep(store: KvStore, group: str, items: Sequence[StoreItem], batch_blocks: int) -> None:
    for start in range(0, len(items), batch_blocks):
        outcomes = store.store(group, items[start : start + batch_blocks], deadline_s=_FOREVER)
        _require("stored", outcomes)


def _load(store: KvStore, keys: Sequence[bytes], places: Sequence[memoryview]) -> None:
    _require("hit", store.load("bench", keys, places, deadline_s=_FOREVER))


def _borrow(store: KvStore, keys: Sequence[bytes]) -> None:
    with store.borrow("bench", keys, deadline_s=_FOREVER) as lent:
        _require("hit", [one.outcome for one in lent])


def _find(store: KvStore, keys: Sequence[bytes]) -> None:
    _require("hit", store.find("bench_small", keys, deadline_s=_FOREVER))


def _match(store: KvStore, keys: Sequence[bytes]) -> None:
    found = match(lambda some: store.find("bench_small", some, deadline_s=_FOREVER), keys)
    if found.blocks != len(keys):
        raise EngineError(f"asked for {len(keys)} blocks that are there, found {found.blocks}")


def _require(status: str, outcomes: Sequence[Outcome]) -> None:
    for one in outcomes:
        if one.status != status:
            raise EngineError(
                f"asked a store to be measured, found a block that is {one.status}: {one.reason}",
                hint="give it room, and a folder that nothing else is kept in",
            )
