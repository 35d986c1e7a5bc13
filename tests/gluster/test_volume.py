"""Does ``threefs.posix`` keep blocks on a volume that loses bricks?

Blocks of the full model, on GlusterFS 10+2: any two of twelve bricks may be lost, not three.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.stores.retention import Limits
from deepinfer_core.testing.contracts.kv_store_suite import block, item, key
from deepinfer_core.testing.store_groups import BLOCKS, FOREVER
from deepinfer_threefs.medium import PosixMedium
from deepinfer_threefs.place import StorePlace
from deepinfer_threefs.store import ThreefsStore

FULL = replace(BLOCKS, block_bytes=113_920)
LIMITS = Limits(capacity_bytes=1 << 30, retention_s={"agent": 1e6})
CALL_S = 60.0
"""Longer than a mount takes to see that a brick is gone."""


@pytest.fixture
def opened(volume: Any, request: pytest.FixtureRequest) -> Iterator[Callable[[int], ThreefsStore]]:
    """Opens a store on one of the mounts, in a folder of the test's own."""
    stores: list[ThreefsStore] = []

    def make(mount: int) -> ThreefsStore:
        folder: Path = volume.mounts[mount] / request.node.name
        place = StorePlace(folder=str(folder), segment_bytes=1 << 23, refresh_s=0)
        store = ThreefsStore(place, LIMITS, medium=PosixMedium())
        store.open([FULL])
        stores.append(store)
        return store

    yield make
    volume.restore()
    for store in stores:
        store.close()


def write(store: ThreefsStore, *names: object) -> list[str]:
    items = [item(name, FULL) for name in names]
    outcomes = store.store("blocks", items, deadline_s=time.monotonic() + CALL_S)
    return [one.status for one in outcomes]


def read(store: ThreefsStore, *names: object) -> list[str]:
    buffers = [bytearray(FULL.block_bytes) for _ in names]
    outcomes = store.load(
        "blocks", [key(name) for name in names], buffers, deadline_s=time.monotonic() + CALL_S
    )
    for name, outcome, buffer in zip(names, outcomes, buffers, strict=True):
        assert outcome.status != "hit" or buffer == block(name, FULL), "wrong bytes"
    return [one.status for one in outcomes]


NAMES = [("text", number) for number in range(128)]


def test_blocks_that_one_mount_wrote_are_read_on_the_other(opened: Any) -> None:
    one, other = opened(0), opened(1)
    begin_s = time.monotonic()
    assert write(one, *NAMES) == ["stored"] * 128
    written_s = time.monotonic()
    other.look(deadline_s=FOREVER)
    looked_s = time.monotonic()
    assert read(other, *NAMES) == ["hit"] * 128
    read_s = time.monotonic()
    size_mb = 128 * FULL.block_bytes / 1e6
    logging.getLogger(__name__).info(
        "128 blocks: written %.0f MB/s, found in %.3f s, read %.0f MB/s",
        size_mb / (written_s - begin_s),
        looked_s - written_s,
        size_mb / (read_s - looked_s),
    )


def test_two_bricks_fewer_change_nothing(volume: Any, opened: Any) -> None:
    one, other = opened(0), opened(1)
    write(one, *NAMES)
    other.look(deadline_s=FOREVER)
    volume.kill(3, 7)
    assert read(other, *NAMES) == ["hit"] * 128
    assert write(other, *(("more", number) for number in range(16))) == ["stored"] * 16
    one.look(deadline_s=FOREVER)
    assert read(one, *NAMES, ("more", 15)) == ["hit"] * 129
    again = opened(1)
    assert read(again, *NAMES, ("more", 15)) == ["hit"] * 129


def test_three_bricks_fewer_are_outcomes_and_all_is_there_when_they_are_back(
    volume: Any, opened: Any
) -> None:
    one, other = opened(0), opened(1)
    write(one, *NAMES)
    other.look(deadline_s=FOREVER)
    read(other, *NAMES[:8])
    volume.kill(0, 4, 11)
    statuses = read(other, *NAMES)
    assert set(statuses) <= {"unavailable", "miss", "corrupt"}, "a hit comes from ten bricks"
    assert statuses.count("unavailable") == 128
    assert set(write(other, ("more", 0), ("more", 1))) <= {"unavailable", "timeout"}
    other.look(deadline_s=FOREVER)
    assert other.report().problem
    other.sweep(deadline_s=time.monotonic() + CALL_S)
    assert other.report().records == 128, "what cannot be read now is not forgotten"
    volume.restore()
    limit_s = time.monotonic() + CALL_S
    while read(other, *NAMES) != ["hit"] * 128:
        assert time.monotonic() < limit_s
    assert write(other, ("more", 0)) == ["stored"]
    assert read(opened(0), *NAMES, ("more", 0)) == ["hit"] * 129


def test_room_is_given_back(volume: Any, opened: Any) -> None:
    one = opened(0)
    write(one, *NAMES)
    folder = Path(one._place.folder)

    def allocated_bytes() -> int:
        return sum(512 * path.stat().st_blocks for path in folder.rglob("*.seg"))

    before = allocated_bytes()
    with one._opened.keeper.catalogue.lock:
        going = [("blocks", key(name)) for name in NAMES if name[1] % 2]
        one._opened.keeper.catalogue.shelf.remove(going, "expired")
    one.sweep(deadline_s=FOREVER)
    # Of 11,469 bytes that a brick has of a record at least one whole page of 4,096 is freed, and
    # half of the records are gone: 0.5 * 4,096 / 11,469 = 0.18.
    assert allocated_bytes() < 0.83 * before
    assert read(one, *NAMES[::2]) == ["hit"] * 64
    one.drop()
    assert allocated_bytes() == 0


@pytest.mark.parametrize("bricks", [(1, 2), (1, 2, 3)], ids=["two", "three"])
def test_bricks_that_go_in_the_middle_of_writing(
    volume: Any, opened: Any, bricks: tuple[int, ...]
) -> None:
    """Two spoil nothing. Three may leave a file of the volume that nobody can read any more."""
    one, other = opened(0), opened(1)
    stored: list[object] = []
    is_over = threading.Event()

    def go_on() -> None:
        number = 0
        while not is_over.is_set():
            names = [("text", number, depth) for depth in range(8)]
            if write(one, *names) == ["stored"] * 8:
                stored.extend(names)
            number += 1

    writer = threading.Thread(target=go_on)
    writer.start()
    time.sleep(1.0)
    volume.kill(*bricks)
    time.sleep(2.0)
    volume.restore()
    before = len(stored)
    limit_s = time.monotonic() + CALL_S
    while len(stored) <= before and time.monotonic() < limit_s:
        time.sleep(0.1)
    is_over.set()
    writer.join()
    assert before < len(stored), "it does not write any more"
    other.look(deadline_s=FOREVER)
    for store in (one, other):
        statuses = read(store, *stored)
        assert statuses[-8:] == ["hit"] * 8, "it does not go on"
        if len(bricks) == 2:
            assert statuses == ["hit"] * len(stored)
