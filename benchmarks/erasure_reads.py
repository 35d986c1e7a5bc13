"""How fast are blocks put together from pieces, and what does it help to ask one child too many?

Decoding is compared with pyeclib's ``decode``, the library around ISA-L, on the same pieces in the
same run: blocks of 113,920 bytes, 10 + 2 pieces; of one or two lost ones the mean over all choices
of data. Ours writes into the destination; the library returns new bytes.

Loads and stores of many blocks at a time over twelve stores in memory are compared with the same
calls of these stores alone, one after the other: what is left is what cutting, putting together,
checking and waiting for threads take.

Reads are of one block at a time from twelve stores in memory whose calls take a drawn time, one of
them ten times as long. ``--record`` keeps the figures.
"""

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import combinations

import numpy as np
from deepinfer_core.interfaces.kv_store import BlockGroup, StoreItem
from deepinfer_core.stores.erasure.fragments import (
    FRAGMENT_HEADER_BYTES,
    Piece,
    Shape,
    is_block_whole,
    read_piece,
)
from deepinfer_core.stores.erasure.frames import FramePool
from deepinfer_core.stores.erasure.isal import IsalCodec
from deepinfer_core.stores.erasure.store import ErasureStore
from deepinfer_core.stores.erasure.writing import write_frame
from deepinfer_core.stores.memory import MemoryStore
from deepinfer_core.stores.retention import Limits
from deepinfer_core.testing.faulty_store import FaultyStore
from pyeclib.ec_iface import ECDriver
from record import figure, options, write

DATA, PARITY = 10, 2
BATCH = 64
FAR_S = 1e9
GROUP = BlockGroup(
    name="blocks",
    number_format="bytes",
    layout=bytes(16),
    block_tokens=128,
    block_bytes=113_920,
    reuse="leading",
    replay_tokens=0,
    retention="agent",
)
SHAPE = Shape(group=GROUP, data=DATA, parity=PARITY)
LIMITS = Limits(capacity_bytes=1 << 28, retention_s={"agent": 1e6})


def block(number: int) -> StoreItem:
    """A block by its number."""
    key = sha256(b"%d" % number).digest()
    data = np.random.default_rng(number).bytes(GROUP.block_bytes)
    return StoreItem(key=key, data=data, namespace=bytes(32), depth=number)


def best_s(works: Mapping[str, Callable[[], object]], times: int) -> dict[str, float]:
    """Seconds of one call of each, the best of several turns in which all take part."""
    found = dict.fromkeys(works, float("inf"))
    for _ in range(25):
        for name, work in works.items():
            since_s = time.perf_counter()
            for _ in range(times):
                work()
            found[name] = min(found[name], (time.perf_counter() - since_s) / times)
    return found


def decode_rates() -> list[dict[str, object]]:
    """Ours and the library's, by how many pieces of data are lost; with all checks, too."""
    codec, pool, item = IsalCodec(DATA, PARITY), FramePool(), block(0)
    frames = pool.lease(SHAPE, 1)
    write_frame(SHAPE, codec, item, frames, 0)
    driver = ECDriver(ec_type="isa_l_rs_cauchy", k=DATA, m=PARITY)
    theirs = driver.encode(bytes(item.data))
    destination = bytearray(GROUP.block_bytes)
    data_KF = np.frombuffer(destination, np.uint8).reshape(DATA, -1)
    figures = []
    for lost in range(PARITY + 1):
        choices = [
            [*(number for number in range(DATA) if number not in gone), *range(DATA, DATA + lost)]
            for gone in combinations(range(DATA), lost)
        ]
        ours = [{number: number for number in choice} for choice in choices]
        packed = [[theirs[number] for number in choice] for choice in choices]

        def decode(ours: Sequence[dict[int, int]] = ours) -> None:
            for rows in ours:
                codec.decode(frames.pieces(0), rows, data_KF)

        def checked(ours: Sequence[dict[int, int]] = ours) -> None:
            for rows in ours:
                stripes: dict[bytes, int] = {}
                for row in rows.values():
                    piece = read_piece(frames.fragments(0)[row], SHAPE, item.key, stripes)
                    assert isinstance(piece, Piece)
                    stripes[piece.stripe] = row
                (stripe,) = stripes
                if codec.decode(frames.pieces(0), rows, data_KF):
                    assert is_block_whole(stripe, destination)

        def raw(packed: Sequence[list[bytes]] = packed) -> None:
            for fragments in packed:
                driver.decode(fragments)

        works: dict[str, Callable[[], object]] = {
            "ours": decode,
            "checked": checked,
            "raw": raw,
        }
        seconds = best_s(works, max(100 // len(choices), 1))
        assert destination == item.data
        rate = {name: GROUP.block_bytes * len(choices) / one / 1e6 for name, one in seconds.items()}
        figures.append(
            figure(
                f"erasure.decode.lost_{lost}",
                round(rate["ours"]),
                "MB/s",
                peer={"name": "pyeclib isa_l_rs_cauchy decode", "value": round(rate["raw"])},
                ratio=round(rate["ours"] / rate["raw"], 2),
                with_all_checks=round(rate["checked"]),
                piece_bytes=SHAPE.piece_bytes + FRAGMENT_HEADER_BYTES,
            )
        )
    return figures


def whole_rates() -> list[dict[str, object]]:
    """Loads and stores of blocks in batches, and those of the children alone."""
    items = [block(number) for number in range(BATCH)]
    keys = [item.key for item in items]
    children = [MemoryStore(LIMITS) for _ in range(DATA + PARITY)]
    named = [(f"child {number}", child) for number, child in enumerate(children)]
    store = ErasureStore(named, IsalCodec(DATA, PARITY))
    store.open([GROUP])
    room = [bytearray(GROUP.block_bytes) for _ in items]
    pieces = [bytearray(SHAPE.fragment_bytes) for _ in items]
    fragments = [replace(item, data=piece) for item, piece in zip(items, pieces, strict=True)]
    found: dict[str, float] = {}

    def timed(name: str, work: Callable[[], object]) -> None:
        since_s = time.perf_counter()
        work()
        took_s = time.perf_counter() - since_s
        found[name] = min(found.get(name, took_s), took_s)

    for _ in range(25):
        store.drop()
        timed("store", lambda: store.store("blocks", items, deadline_s=FAR_S))
        timed("load", lambda: store.load("blocks", keys, room, deadline_s=FAR_S))
        assert room == [item.data for item in items]
        timed(
            "children load",
            lambda: [c.load("blocks", keys, pieces, deadline_s=FAR_S) for c in children[:-1]],
        )
        store.drop()
        timed(
            "children store",
            lambda: [c.store("blocks", fragments, deadline_s=FAR_S) for c in children],
        )
    store.close()
    rate = {name: BATCH * GROUP.block_bytes / took_s / 1e6 for name, took_s in found.items()}
    return [
        figure(
            f"erasure.{call}[blocks={BATCH}]",
            round(rate[call]),
            "MB/s",
            bound={"name": "the children's calls alone", "value": round(rate[f"children {call}"])},
            ratio=round(rate[call] / rate[f"children {call}"], 2),
        )
        for call in ("load", "store")
    ]


def read_times_ms(spare: int, reads: int, slow_ratio: float) -> list[float]:
    """Milliseconds of single reads."""
    draw = random.Random("service times")
    children = [FaultyStore(MemoryStore(LIMITS)) for _ in range(DATA + PARITY)]
    named = [(f"child {number}", child) for number, child in enumerate(children)]
    store = ErasureStore(named, IsalCodec(DATA, PARITY), spare=spare)
    store.open([GROUP])
    items = [block(number) for number in range(32)]
    outcomes = store.store("blocks", items, deadline_s=time.monotonic() + FAR_S)
    assert all(one.status == "stored" for one in outcomes)
    for number, child in enumerate(children):
        mean_s = 0.002 * (slow_ratio if number == 5 else 1.0)
        child.delay_s = lambda mean_s=mean_s: mean_s * (0.5 + 0.5 * draw.expovariate(1.0))  # type: ignore[misc]
    buffer, times_ms = bytearray(GROUP.block_bytes), []
    for number in range(reads + 50):
        item = items[number % len(items)]
        since_s = time.perf_counter()
        (outcome,) = store.load("blocks", [item.key], [buffer], deadline_s=time.monotonic() + FAR_S)
        took_ms = (time.perf_counter() - since_s) * 1e3
        assert outcome.status == "hit"
        assert buffer == item.data
        if number >= 50:
            times_ms.append(took_ms)
    store.close()
    return times_ms


def fan_outs(reads: int, slow_ratio: float) -> list[dict[str, object]]:
    """Medians and tails of reads that ask 10, 11 and 12 children."""
    found = {}
    for spare in range(PARITY + 1):
        times_ms = read_times_ms(spare, reads, slow_ratio)
        cuts = statistics.quantiles(times_ms, n=100)
        found[spare] = (statistics.median(times_ms), cuts[98])
    ten_ms = found[0][1]
    return [
        figure(
            f"erasure.read.asked_{DATA + spare}",
            round(tail_ms, 2),
            "ms, 99 of 100",
            peer={"name": f"{DATA} asked", "value": round(ten_ms, 2)},
            ratio=round(tail_ms / ten_ms, 2),
            median_ms=round(median_ms, 2),
            slow_ratio=slow_ratio,
        )
        for spare, (median_ms, tail_ms) in found.items()
    ]


def main() -> None:
    """Measure, print and store."""
    parser = options(__doc__)
    parser.add_argument("--reads", type=int, default=1000, help="of each fan-out")
    parser.add_argument("--slow-ratio", type=float, default=10.0, help="of the slow child")
    args = parser.parse_args()
    figures = decode_rates() + whole_rates() + fan_outs(args.reads, args.slow_ratio)
    write("erasure_reads.json", figures, is_record=args.record)


if __name__ == "__main__":
    main()
