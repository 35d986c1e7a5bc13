"""Some of each fault that ``benchmarks/store_faults.py`` injects by thousands."""

import zlib
from pathlib import Path

import pytest
from deepinfer_core.interfaces.kv_store import KvStore
from deepinfer_core.testing.store_faults.blocks import WrongBytes, loaded, numbered
from deepinfer_core.testing.store_faults.campaign import left_behind
from deepinfer_core.testing.store_faults.damage import FIELDS, KINDS, damage_records
from deepinfer_core.testing.store_faults.processes import cut_off, fill_medium, kill_writers
from deepinfer_core.testing.store_faults.slow import slow_tiers
from deepinfer_core.testing.store_faults.targets import make_target
from deepinfer_core.testing.store_groups import BLOCKS, STATES


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    return zlib.crc32(request.node.name.encode())


@pytest.mark.parametrize("name", ["core.memory", "core.disk", "core.tiered", "core.erasure"])
def test_every_damaged_record_is_found_and_counted(name: str, tmp_path: Path, seed: int) -> None:
    target = make_target(name, tmp_path)
    target.store.open([BLOCKS, STATES])
    count = 3 * len(KINDS)
    report = damage_records(target, count, seed)
    target.store.close()
    assert report.injected == dict.fromkeys(KINDS, 3)
    assert report.uncounted == 0
    assert report.outcomes.total() == count
    # Of tiers another one may have the block already; pieces of others make up for one.
    if name != "core.tiered":
        assert report.outcomes["hit"] == (count if name == "core.erasure" else 0)


def test_the_fields_are_all_of_a_record() -> None:
    ends = [0, *(offset + size for offset, size in FIELDS.values())]
    assert [offset for offset, _ in FIELDS.values()] == ends[:-1]


def test_a_killed_writer_loses_nothing_that_it_stored(tmp_path: Path, seed: int) -> None:
    assert kill_writers("core.disk", tmp_path / "killed", 2, seed).injected == {"SIGKILL": 2}


def test_a_file_that_is_cut_off_gives_no_wrong_block(tmp_path: Path, seed: int) -> None:
    report = cut_off("core.disk", tmp_path, 2, seed)
    assert report.injected == {"cut off": 2}
    assert report.outcomes["ended"] == 0


def test_a_full_medium_takes_what_it_can_and_more_when_there_is_room(
    tmp_path: Path, seed: int
) -> None:
    report = fill_medium("core.disk", tmp_path, 2, seed)
    assert report.injected == {"full": 2}
    assert report.outcomes["stored"] > 0
    assert report.outcomes["unavailable"] > 0


def test_a_tier_that_hangs_holds_nobody_up(seed: int) -> None:
    report = slow_tiers(8, seed)
    assert report.injected.total() == 8


def test_wrong_bytes_would_be_noticed(tmp_path: Path) -> None:
    target = make_target("core.memory", tmp_path)
    target.store.open([BLOCKS])
    item = numbered(0)
    target.store.store("blocks", [numbered(0)], deadline_s=1e18)

    class Spoiling:
        def load(self, group: str, keys: object, room: list[bytearray], **_: object) -> object:
            outcomes = target.store.load(group, keys, room, deadline_s=1e18)  # type: ignore[arg-type]
            room[0][7] ^= 1
            return outcomes

    store: KvStore = Spoiling()  # type: ignore[assignment]
    with pytest.raises(WrongBytes):
        loaded(store, [item])


def test_what_a_process_has_is_counted(tmp_path: Path) -> None:
    before = left_behind()
    with (tmp_path / "file").open("w"):
        assert left_behind().minus(before)["descriptors"] == 1
    assert left_behind().minus(before)["descriptors"] == 0
