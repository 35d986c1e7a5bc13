"""Is it told what a store keeps, and is every damaged block found?"""

from pathlib import Path
from types import MappingProxyType

import pytest
from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.kv_store import KvStore
from deepinfer_core.stores.disk.index import AGE_STEP_S, address_of
from deepinfer_core.stores.disk.store import DiskStore
from deepinfer_core.stores.inspection import contents, discard_damaged, verify
from deepinfer_core.stores.memory import MemoryStore
from deepinfer_core.stores.retention import Limits
from deepinfer_core.testing.contracts.kv_store_suite import chain, item, key
from deepinfer_core.testing.store_groups import BLOCKS, FOREVER, STATES

LIMITS = Limits(
    capacity_bytes=8 << 20,
    retention_s={"agent": 1e6, "chat": 1e6, "state": 1e6},
    age_step_s=AGE_STEP_S,
)
ONE, OTHER = bytes(32), bytes([1]) * 32


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    found = DiskStore(tmp_path / "store", LIMITS, durable=False)
    found.open([BLOCKS, STATES])
    found.store("blocks", chain("text", 20, namespace=ONE), deadline_s=FOREVER)
    found.store("blocks", [item("a", namespace=OTHER, retention="chat")], deadline_s=FOREVER)
    found.store("state", [item("a", STATES, namespace=OTHER)], deadline_s=FOREVER)
    return found


def damage(store: DiskStore, folder: Path, *names: object) -> None:
    """Flip a bit of blocks, in the file."""
    assert store._opened is not None
    path = folder / "store" / "data.mdb"
    for name in names:
        with store._opened.environment.reading() as txn:
            table = store._opened.reader._index.records
            record = bytes(txn.get(address_of("blocks", key(name)), b"", db=table))
        at = path.read_bytes().rindex(record) + len(record) - 9
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes([record[-9] ^ 4]))


def test_contents_are_counted_by_group_class_and_namespace(store: DiskStore) -> None:
    found = contents(store)
    assert set(found) == {"blocks", "state"}
    blocks = found["blocks"]
    assert (blocks.blocks, blocks.data_bytes) == (21, 21 * BLOCKS.block_bytes)
    assert blocks.classes == {"agent": 20, "chat": 1}
    assert blocks.namespaces == {ONE: 20, OTHER: 1}
    assert found["state"].classes == {"state": 1}
    assert store.report().outcomes.keys() == {"stored"}
    store.close()


def test_more_blocks_than_are_listed_at_once_are_counted_and_read() -> None:
    store = MemoryStore(LIMITS)
    store.open([BLOCKS])
    store.store("blocks", chain("long", 1030), deadline_s=FOREVER)
    assert contents(store)["blocks"].blocks == 1030
    assert verify(store).outcomes == {"hit": 1030}


def test_every_damaged_block_is_found_and_only_those_are_removed(
    store: DiskStore, tmp_path: Path
) -> None:
    damage(store, tmp_path, ("text", 3), ("text", 19))
    store.close()
    reading = DiskStore(tmp_path / "store", LIMITS, writes=False)
    reading.open([BLOCKS, STATES])
    found = verify(reading)
    assert found.outcomes == {"hit": 20, "corrupt": 2}
    assert {one.key for one in found.damaged} == {key(("text", 3)), key(("text", 19))}
    assert {(one.group, one.outcome.reason) for one in found.damaged} == {
        ("blocks", "the block has changed")
    }
    assert verify(reading).outcomes == found.outcomes
    reading.close()
    store.open([BLOCKS, STATES])
    assert discard_damaged(store, found.damaged) == 2
    assert verify(store).outcomes == {"hit": 20}
    assert store.report().removed == {"damaged": 2}
    store.close()


def test_a_block_that_was_stored_again_meanwhile_is_left_alone(
    store: DiskStore, tmp_path: Path
) -> None:
    damage(store, tmp_path, "a")
    found = verify(store)
    assert found.outcomes["corrupt"] == 1
    store.store("blocks", [item("a", namespace=OTHER)], deadline_s=FOREVER)
    assert discard_damaged(store, found.damaged) == 0
    assert verify(store).outcomes == {"hit": 22}
    store.close()


def test_a_store_that_does_not_list_its_blocks_says_so() -> None:
    class Plain(KvStore):
        groups = MappingProxyType({"blocks": BLOCKS})

    Plain.__abstractmethods__ = frozenset()
    with pytest.raises(NotSupported, match="Plain, which lists none"):
        contents(Plain())
