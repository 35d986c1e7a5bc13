"""Does a store on a disk outlive its processes, and can others read what one writes?"""

import os
import random
import signal
import subprocess
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from deepinfer_core.errors import ConfigError, EngineError
from deepinfer_core.interfaces.kv_store import StoreItem
from deepinfer_core.stores.disk.store import DiskStore
from deepinfer_core.testing.contracts.kv_store_suite import chain, item, key
from deepinfer_core.testing.store_groups import BLOCKS, FOREVER

Watch = Callable[[subprocess.Popen[str]], subprocess.Popen[str]]

WRITER = """
from dataclasses import replace
store = DiskStore(Path(sys.argv[1]), replace(LIMITS, capacity_bytes=4096 * 4096))
store.open([BLOCKS, STATES])
first = int(sys.argv[2])
for number in range(first, first + 500, 5):
    items = [numbered(number + one) for one in range(5)]
    statuses = {one.status for one in store.store("blocks", items, deadline_s=FOREVER)}
    say(number, *statuses)
sys.stdin.read()
"""
"""It stops before the store is full, however late it is killed."""

READER = """
import numpy
store = DiskStore(Path(sys.argv[1]), LIMITS, writes=False)
store.open([BLOCKS, STATES])
mapped = []
for line in open("/proc/self/maps"):
    if line.rstrip().endswith("/store/data.mdb"):
        mapped.append(range(*(int(end, 16) for end in line.split()[0].split("-"))))
for line in sys.stdin:
    keys = [bytes.fromhex(word) for word in line.split()]
    copies = [bytearray(BLOCKS.block_bytes) for _ in keys]
    loaded = store.load("blocks", keys, copies, deadline_s=FOREVER)
    with store.borrow("blocks", keys, deadline_s=FOREVER) as lent:
        for one, outcome, copy in zip(lent, loaded, copies):
            assert outcome.status == one.outcome.status
            if one.data is None:
                say(outcome.status)
                continue
            assert one.data == copy
            place = numpy.frombuffer(one.data, dtype=numpy.uint8)
            place, size = place.ctypes.data, place.nbytes
            say("mapped" if any(place in m and place + size - 1 in m for m in mapped) else "copied")
"""


def numbered(number: int) -> StoreItem:
    name = number.to_bytes(32, "little")
    return StoreItem(
        key=name, data=name * 121 + name[:16], namespace=bytes(32), depth=number % 1000
    )


def ask(reader: subprocess.Popen[str], *names: object) -> list[str]:
    assert reader.stdin is not None
    assert reader.stdout is not None
    reader.stdin.write(" ".join(key(name).hex() for name in names) + "\n")
    reader.stdin.flush()
    return [reader.stdout.readline().strip() for _ in names]


def load_numbered(store: DiskStore, numbers: list[int]) -> list[str]:
    copies = [bytearray(BLOCKS.block_bytes) for _ in numbers]
    keys = [numbered(number).key for number in numbers]
    outcomes = store.load("blocks", keys, copies, deadline_s=FOREVER)
    for number, outcome, copy in zip(numbers, outcomes, copies, strict=True):
        assert outcome.status != "hit" or copy == numbered(number).data
    return [one.status for one in outcomes]


def test_a_writer_that_is_killed_again_and_again_loses_nothing_that_it_stored(
    place: Any, run: Watch, request: pytest.FixtureRequest
) -> None:
    chance = random.Random(zlib.crc32(request.node.name.encode()))
    kept: list[int] = []
    for _ in range(8):
        first = kept[-1] + 1 if kept else 0
        writer = run(place.program(WRITER, first))
        assert writer.stdout is not None
        # Between two commits, or within one: some lines are read, then there is no more time.
        lines = [writer.stdout.readline() for _ in range(chance.randint(1, 30))]
        writer.send_signal(signal.SIGKILL)
        lines += writer.stdout.readlines()
        writer.wait()  # its lock goes later than its output
        for line in lines:
            number, *statuses = line.split()
            assert statuses == ["stored"]
            kept += range(int(number), int(number) + 5)
        store = place.opened(capacity_bytes=4096 * 4096)
        behind = range(kept[-1] + 1, kept[-1] + 6)
        assert load_numbered(store, kept) == ["hit"] * len(kept)
        # The batch that nobody heard of is there as a whole, or not at all.
        assert load_numbered(store, list(behind)) in (["hit"] * 5, ["miss"] * 5)
        if load_numbered(store, [behind[0]]) == ["hit"]:
            kept += behind
        place.assert_books_are_right(store)
        store.close()


def test_other_processes_read_in_the_map_what_one_writes(place: Any, run: Watch) -> None:
    store = place.opened()
    store.store("blocks", chain("text", 3), deadline_s=FOREVER)
    reader = run(place.program(READER))
    assert ask(reader, ("text", 0), ("text", 2), "later") == ["mapped", "mapped", "miss"]
    store.store("blocks", [item("later")], deadline_s=FOREVER)
    assert ask(reader, "later") == ["mapped"]
    store.drop()
    assert ask(reader, "later", ("text", 0)) == ["miss"] * 2


def test_a_reader_outlives_the_writer_and_sees_the_next_one(place: Any, run: Watch) -> None:
    store = place.opened()
    store.store("blocks", [item("a")], deadline_s=FOREVER)
    reader = run(place.program(READER))
    assert ask(reader, "a") == ["mapped"]
    store.close()
    assert ask(reader, "a") == ["mapped"]
    again = place.opened()
    again.store("blocks", [item("b")], deadline_s=FOREVER)
    assert ask(reader, "a", "b") == ["mapped"] * 2


def test_a_reader_meets_only_whole_blocks_while_the_writer_replaces_them(
    place: Any, run: Watch
) -> None:
    code = """
store = DiskStore(Path(sys.argv[1]), LIMITS, writes=False)
store.open([BLOCKS])
say("open")
copies = [bytearray(BLOCKS.block_bytes) for _ in range(8)]
seen = set()
for round in range(200):
    items = [numbered(number) for number in range(round % 25, 200, 25)]
    keys = [one.key for one in items]
    outcomes = store.load("blocks", keys, copies, deadline_s=FOREVER)
    for one, outcome, copy in zip(items, outcomes, copies):
        assert outcome.status != "hit" or copy == one.data
        seen.add(outcome.status)
say(*sorted(seen))
"""
    store = place.opened(young_s=0.0)
    first = 0

    def replace_some() -> None:
        nonlocal first
        items = [numbered((first + one) % 200) for one in range(20)]
        store.store("blocks", items, deadline_s=FOREVER)
        first += 20
        place.pass_time(3600.0)

    # Half of the numbers are there at any time, however slow this process is from now on.
    for _ in range(10):
        replace_some()
    reader = run(place.program(code))
    assert reader.stdout is not None
    assert reader.stdout.readline() == "open\n"
    while reader.poll() is None:
        replace_some()
    assert reader.stdout.read().split() == ["hit", "miss"]


def test_a_process_that_only_reads_changes_nothing(place: Any) -> None:
    writer = place.opened()
    writer.store("blocks", [item("a")], deadline_s=FOREVER)
    writer.close()
    reader = place.opened(writes=False)
    (outcome,) = reader.store("blocks", [item("b")], deadline_s=FOREVER)
    assert outcome.status == "unavailable"
    assert "does not write" in outcome.reason
    reader.touch("blocks", [key("a")], retention="chat")
    place.pass_time(1e7)
    assert reader.sweep(deadline_s=FOREVER) == 0
    with pytest.raises(EngineError, match="does not write"):
        reader.drop()
    assert reader.report().records == 1


def test_damage_that_a_reader_finds_is_left_to_the_writer(place: Any) -> None:
    writer = place.opened()
    writer.store("blocks", [item("a")], deadline_s=FOREVER)
    writer.close()
    path = place.folder / "data.mdb"
    data = bytearray(path.read_bytes())
    data[data.rindex(item("a").data) + 7] ^= 1
    path.write_bytes(data)
    for writes, statuses in ((False, ["corrupt", "corrupt"]), (True, ["corrupt", "miss"])):
        store = place.opened(writes=writes)
        found = []
        for _ in range(2):
            copy = bytearray(BLOCKS.block_bytes)
            found += store.load("blocks", [key("a")], [copy], deadline_s=FOREVER)
        assert [one.status for one in found] == statuses
        store.close()


def test_only_one_store_writes_at_a_time(place: Any) -> None:
    first = place.opened()
    with pytest.raises(ConfigError, match="another process"):
        place.opened()
    first.close()
    place.opened()


def test_another_process_cannot_write_beside_this_one(place: Any, run: Watch) -> None:
    code = """
from deepinfer_core.errors import ConfigError
store = DiskStore(Path(sys.argv[1]), LIMITS)
try:
    store.open([BLOCKS])
except ConfigError as error:
    say(error.message)
"""
    place.opened()
    said = run(place.program(code)).communicate()[0]
    assert "writes to" in said


def test_a_reader_that_is_killed_while_it_looks_holds_nothing_back(place: Any, run: Watch) -> None:
    code = """
store = DiskStore(Path(sys.argv[1]), LIMITS, writes=False)
store.open([BLOCKS])
with store.borrow("blocks", [], deadline_s=FOREVER):
    say("looks")
    sys.stdin.read()
"""
    # Little more than the map allows in pages that wait to be freed: 4 MiB and a tenth.
    store = place.opened(capacity_bytes=1024 * 4096, young_s=0.0)
    store.store("blocks", chain("old", 800), deadline_s=FOREVER)
    reader = run(place.program(code))
    assert reader.stdout is not None
    assert reader.stdout.readline() == "looks\n"
    reader.kill()
    reader.wait()
    for text in range(4):
        place.pass_time(7200.0)
        outcomes = store.store("blocks", chain(text, 800), deadline_s=FOREVER)
        assert {one.status for one in outcomes} == {"stored"}
    place.assert_books_are_right(store)


def test_only_the_owner_may_read_what_is_kept(place: Any) -> None:
    store = place.opened()
    store.store("blocks", [item("a")], deadline_s=FOREVER)
    files = [place.folder, place.folder / "data.mdb", place.folder / "lock.mdb"]
    assert [path.stat().st_mode & 0o077 for path in files] == [0, 0, 0]


def test_a_full_disk_makes_blocks_unavailable_until_there_is_room(place: Any, run: Watch) -> None:
    code = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = DiskStore(Path(sys.argv[1]), LIMITS)
store.open([BLOCKS])
def write(first):
    items = [numbered(first + one) for one in range(10)]
    say(*{one.status for one in store.store("blocks", items, deadline_s=FOREVER)})
write(0)
size = (Path(sys.argv[1]) / "data.mdb").stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 8192, resource.RLIM_INFINITY))
write(10)
write(20)
keys = [numbered(one).key for one in range(20)]
say(*(one.status for one in store.find("blocks", keys, deadline_s=FOREVER)))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
write(10)
"""
    said = run(place.program(code)).communicate()[0].splitlines()
    there = " ".join(["hit"] * 10 + ["miss"] * 10)
    assert said == ["stored", "unavailable", "unavailable", there, "stored"]
    store = place.opened()
    assert load_numbered(store, list(range(20))) == ["hit"] * 20
    place.assert_books_are_right(store)


@pytest.mark.parametrize("kept", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("who", ["reads", "writes"])
def test_a_file_that_was_cut_off_ends_no_process(
    place: Any, run: Watch, who: str, kept: float
) -> None:
    code = """
from deepinfer_core.errors import ConfigError
store = DiskStore(Path(sys.argv[1]), LIMITS, writes=sys.argv[2] == "writes", durable=False)
try:
    store.open([BLOCKS])
    items = [numbered(number) for number in range(80)]
    copies = [bytearray(BLOCKS.block_bytes) for _ in items]
    outcomes = store.load("blocks", [one.key for one in items], copies, deadline_s=FOREVER)
    for one, outcome, copy in zip(items, outcomes, copies):
        assert outcome.status in ("corrupt", "miss", "unavailable") or copy == one.data
    say("read")
except ConfigError as error:
    say("refused")
"""
    store = place.opened()
    store.store("blocks", [numbered(number) for number in range(80)], deadline_s=FOREVER)
    store.close()
    path = place.folder / "data.mdb"
    os.truncate(path, int(path.stat().st_size * kept))
    assert run(place.program(code, who)).communicate()[0] in ("read\n", "refused\n")
