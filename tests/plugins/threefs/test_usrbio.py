"""Does the store keep to the rules of USRBIO, and get along with all that a ring may answer?"""

from __future__ import annotations

import errno
import os
import sys
import time
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.errors import ConfigError
from deepinfer_core.plugin import ProbeContext
from deepinfer_core.plugin.context import DeviceFacts, ModelNeeds
from deepinfer_core.testing.contracts.kv_store_suite import block, chain, item, key
from deepinfer_core.testing.store_groups import BLOCKS, FOREVER
from deepinfer_threefs import probe
from deepinfer_threefs.testing.usrbio import FORBID_HOLES, FakeUsrbio
from deepinfer_threefs.usrbio import UsrbioMedium

PAGE = 4096
NAMES = [("text", depth) for depth in range(20)]


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeUsrbio]:
    made = FakeUsrbio(tmp_path)
    yield made
    made.files.close()


@pytest.fixture
def store(folder: Any, ask: Any, fake: FakeUsrbio) -> Any:
    made = folder.open(UsrbioMedium(fake, ring_entries=4, rings=2, chunk_bytes=PAGE))
    assert ask.write(made, *chain("text", 20)) == ["stored"] * 20
    return made


def statuses(store: Any, names: Any, deadline_s: float) -> list[str]:
    buffers = [bytearray(BLOCKS.block_bytes) for _ in names]
    outcomes = store.load("blocks", [key(name) for name in names], buffers, deadline_s=deadline_s)
    for name, outcome, buffer in zip(names, outcomes, buffers, strict=True):
        assert outcome.status != "hit" or buffer == block(name), "wrong bytes"
    return [one.status for one in outcomes]


def test_versions_that_are_not_committed_are_read_again(
    store: Any, ask: Any, fake: FakeUsrbio
) -> None:
    fake.habits.pending = 3
    assert ask.read(store, *NAMES) == ["hit"] * 20
    fake.habits.pending = 4  # of one block: once, and three times again
    assert ask.read(store, NAMES[0], NAMES[1]).count("unavailable") <= 1
    fake.habits.pending = 4
    assert ask.read(store, NAMES[0]) == ["unavailable"]
    assert ask.read(store, NAMES[0]) == ["hit"]


def test_short_reads_and_writes_go_on(store: Any, ask: Any, fake: FakeUsrbio) -> None:
    fake.habits.shortened = 30
    assert ask.read(store, *NAMES) == ["hit"] * 20
    fake.habits.shortened = 5
    assert ask.write(store, *chain("more", 20)) == ["stored"] * 20
    assert ask.read(store, *(("more", depth) for depth in range(20))) == ["hit"] * 20


def test_reads_that_never_end_are_late_and_their_memory_is_not_used_again(
    store: Any, ask: Any, fake: FakeUsrbio
) -> None:
    fake.habits.lost = 2
    read = statuses(store, NAMES[:6], time.monotonic() + 0.5)
    assert sorted(read) == ["hit"] * 4 + ["timeout"] * 2
    made = fake.rings
    assert ask.read(store, *NAMES) == ["hit"] * 20
    assert fake.rings == made + 1, "another ring"
    assert ask.read(store, *NAMES) == ["hit"] * 20
    assert fake.rings == made + 1, "which is kept"


def test_where_too_much_never_ends_the_store_is_late_and_not_hung(
    store: Any, ask: Any, fake: FakeUsrbio
) -> None:
    for _ in range(2):
        fake.habits.lost = 4
        while fake.habits.lost:
            assert "timeout" in statuses(store, NAMES[:4], time.monotonic() + 0.05)
    begin_s = time.monotonic()
    assert statuses(store, NAMES, begin_s + 0.05) == ["timeout"] * 20
    assert ask.found(store, *NAMES) == ["hit"] * 20


def test_slow_reads_come_back_to_use(store: Any, ask: Any, fake: FakeUsrbio) -> None:
    assert ask.read(store, *NAMES) == ["hit"] * 20
    made = fake.rings
    fake.habits.delay_s = 0.2
    assert "timeout" in statuses(store, NAMES[:4], time.monotonic() + 0.01)
    fake.habits.delay_s = 0.0
    time.sleep(0.21)
    assert ask.read(store, *NAMES) == ["hit"] * 20
    assert fake.rings == made, "a ring whose operations have ended is used again"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EIO])
def test_what_a_ring_cannot_write_is_unavailable(
    store: Any, ask: Any, fake: FakeUsrbio, number: int
) -> None:
    fake.habits.errors.extend([number] * 2)
    assert ask.write(store, *chain("more", 3)) == ["unavailable"] * 3
    assert os.strerror(number) in store.report().problem
    fake.habits.errors.clear()
    assert ask.write(store, *chain("more", 3)) == ["stored"] * 3
    assert ask.read(store, ("more", 2), NAMES[3]) == ["hit"] * 2


def test_what_a_ring_cannot_read_is_unavailable_and_stays(
    store: Any, ask: Any, fake: FakeUsrbio
) -> None:
    fake.habits.errors.extend([errno.EROFS])
    assert sorted(ask.read(store, *NAMES[:3])) == ["hit", "hit", "unavailable"]
    assert ask.read(store, *NAMES[:3]) == ["hit"] * 3


def test_rings_forbid_holes_and_gather_nothing(
    folder: Any, ask: Any, fake: FakeUsrbio, monkeypatch: pytest.MonkeyPatch
) -> None:
    rings: list[tuple[Any, ...]] = []
    make = fake.ioring
    monkeypatch.setattr(fake, "ioring", lambda *args: rings.append(args) or make(*args))
    store = folder.open(UsrbioMedium(fake, ring_entries=4))
    ask.write(store, *chain("text", 3))
    ask.read(store, *NAMES[:3])
    assert len(rings) == 3
    for mount, _, _, io_depth, _, timeout, _, flags in rings:
        assert (mount, io_depth, timeout, flags) == (fake.mount, 0, None, FORBID_HOLES)


def test_holes_are_misses(store: Any, ask: Any, folder: Any) -> None:
    path = folder.files()[0]
    with path.open("r+b") as file:
        UsrbioMedium(FakeUsrbio(folder.path.parent), chunk_bytes=PAGE).punch(
            file.fileno(), [(2 * PAGE, 4 * PAGE)]
        )
    assert ask.read(store, *NAMES[:4]) == ["hit", "miss", "miss", "hit"]
    assert ask.write(store, *chain("text", 4)) == ["exists", "stored", "stored", "exists"]


def test_holes_are_made_of_whole_chunks_only(folder: Any, ask: Any, fake: FakeUsrbio) -> None:
    fake.habits.chunk_bytes = 4 * PAGE
    store = folder.open(UsrbioMedium(fake, chunk_bytes=4 * PAGE), segment_bytes=1 << 20)
    ask.write(store, *chain("text", 20))
    store.drop(bytes([9]) * 32)
    before = folder.allocated_bytes()
    catalogue = store._opened.keeper.catalogue
    gone = [("blocks", key(name)) for name in NAMES[2:14]]  # pages 3 to 14: chunks 1 and 2 of 4
    with catalogue.lock:
        catalogue.shelf.remove(gone, "expired")
    store._opened.keeper._collector.free_dead()
    assert folder.allocated_bytes() == before - 8 * PAGE
    kept = [*NAMES[:2], *NAMES[14:]]
    assert ask.read(store, *kept) == ["hit"] * 8
    (segment,) = catalogue.segments.values()
    assert sorted(segment.dead) == [page * PAGE for page in (3, 12, 13, 14)]


def test_both_ways_read_each_others_files(folder: Any, ask: Any, store: Any) -> None:
    posix = folder.open()
    assert ask.read(posix, *NAMES) == ["hit"] * 20
    ask.write(posix, item("p"))
    store.look(deadline_s=FOREVER)
    assert ask.read(store, "p") == ["hit"]


def test_descriptors_are_deregistered_before_they_are_closed(
    folder: Any, ask: Any, fake: FakeUsrbio
) -> None:
    medium = UsrbioMedium(fake, ring_entries=4)
    store = folder.open(medium, segment_bytes=2 * PAGE, capacity_bytes=1 << 24)
    names = [("many", number) for number in range(300)]
    ask.write(store, *chain("many", 300))  # a file each: more than are kept open
    assert ask.read(store, *names) == ["hit"] * 300
    assert ask.read(store, *names) == ["hit"] * 300
    assert len(fake.files.registered) <= 2 * 130
    store.close()
    assert fake.files.registered == {}
    assert list(Path(fake.mount, "3fs-virt/iovs").iterdir()) == []


def test_threads_use_rings_of_their_own(store: Any, ask: Any, fake: FakeUsrbio) -> None:
    fake.habits.delay_s = 0.001
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda _: ask.read(store, *NAMES), range(12)))
    assert results == [["hit"] * 20] * 12
    # One was made to look whether any can be; one writes, and two read.
    assert fake.rings <= 1 + 1 + 2


def test_a_folder_that_is_on_no_mount_is_refused(folder: Any, tmp_path: Path) -> None:
    elsewhere = tmp_path / "mount"
    elsewhere.mkdir()
    with pytest.raises(ConfigError, match="on no mount of 3FS"):
        folder.open(UsrbioMedium(FakeUsrbio(elsewhere)))


def test_a_mount_without_rings_is_refused(
    folder: Any, fake: FakeUsrbio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake, "ioring", no_ring)
    with pytest.raises(ConfigError, match=r"no ring can be made on .*: Permission denied"):
        folder.open(UsrbioMedium(fake))


def no_ring(*args: Any) -> None:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


CONTEXT = ProbeContext(device=DeviceFacts(device="cpu"), needs=ModelNeeds(), versions={})
MOUNTINFO = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 22 0:45 / {mount} rw,nosuid shared:9 - fuse.hf3fs hf3fs.cluster rw,user_id=0
41 22 0:46 / /mnt/other rw,nosuid - fuse.glusterfs host:/kv rw
"""


def test_the_probe_says_what_is_missing_in_order(
    fake: FakeUsrbio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    monkeypatch.setattr(probe, "_MOUNTS", mounts)
    mounts.write_text(MOUNTINFO.splitlines()[0])
    monkeypatch.setitem(sys.modules, "hf3fs_py_usrbio", None)
    assert "needs the module hf3fs_py_usrbio" in probe.usrbio(CONTEXT).reason
    module = types.ModuleType("hf3fs_py_usrbio")
    module.ioring = no_ring  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hf3fs_py_usrbio", module)
    assert "needs a mount of 3FS (fuse.hf3fs), found none" in probe.usrbio(CONTEXT).reason
    mounts.write_text(MOUNTINFO.format(mount=fake.mount))
    assert f"no ring can be made on {fake.mount}: Perm" in probe.usrbio(CONTEXT).reason
    module.ioring = fake.ioring  # type: ignore[attr-defined]
    mounts.write_text(MOUNTINFO.format(mount=fake.mount))
    verdict = probe.usrbio(CONTEXT)
    assert verdict.usable, verdict.reason
    assert fake.mount in verdict.reason


def test_mounts_with_spaces_are_read_as_the_kernel_writes_them() -> None:
    assert probe._mounts(MOUNTINFO.format(mount="/mnt/a\\040b\\134c")) == ["/mnt/a b\\c"]


def test_a_module_that_cannot_be_loaded_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for text, reason in (
        ("raise ImportError('libhf3fs_api_shared.so: not found')", "cannot be loaded: libhf3fs"),
        ("import numa_of_nobody", "needs numa_of_nobody"),
    ):
        (tmp_path / "hf3fs_py_usrbio.py").write_text(text)
        monkeypatch.delitem(sys.modules, "hf3fs_py_usrbio", raising=False)
        verdict = probe.usrbio(CONTEXT)
        assert not verdict.usable
        assert reason in verdict.reason
