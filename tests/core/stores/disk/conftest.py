"""A store in a folder of the test, and a look behind it."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.stores.disk.clock import Clock
from deepinfer_core.stores.disk.index import AGE_STEP_S, Facts
from deepinfer_core.stores.disk.store import DiskStore
from deepinfer_core.stores.retention import Limits
from deepinfer_core.testing.store_groups import BLOCKS, STATES

LIMITS = Limits(
    capacity_bytes=100 * 4096,
    retention_s={"agent": 3 * 86400.0, "chat": 7 * 86400.0, "state": 180.0},
    age_step_s=AGE_STEP_S,
    refresh_ratio=1 / 16,
)

BEGINNING = f"""
import sys
from pathlib import Path
from deepinfer_core.stores.disk.store import DiskStore
from deepinfer_core.stores.retention import Limits
from deepinfer_core.interfaces.kv_store import BlockGroup, StoreItem

LIMITS = {LIMITS!r}
BLOCKS = {BLOCKS!r}
STATES = {STATES!r}
FOREVER = float("inf")


def say(*words):
    print(*words, flush=True)


def numbered(number):
    name = number.to_bytes(32, "little")
    return StoreItem(
        key=name, data=name * 121 + name[:16], namespace=bytes(32), depth=number % 1000
    )


"""
"""First lines of a program that uses a store; a numbered block can be made by anyone."""


@dataclass
class Place:
    """A folder and its clocks."""

    folder: Path
    wall_s: float = 1e9
    steady_s: float = 0.0
    stores: list[DiskStore] = field(default_factory=list)

    def store(self, *, writes: bool = True, durable: bool = False, **limits: Any) -> DiskStore:
        clock = Clock(wall=lambda: self.wall_s, steady=lambda: self.steady_s)
        store = DiskStore(
            self.folder, replace(LIMITS, **limits), writes=writes, durable=durable, clock=clock
        )
        self.stores.append(store)
        return store

    def opened(self, **options: Any) -> DiskStore:
        store = self.store(**options)
        store.open([BLOCKS, STATES])
        return store

    def pass_time(self, seconds: float) -> None:
        self.wall_s += seconds
        self.steady_s += seconds

    def program(self, code: str, *arguments: object) -> subprocess.Popen[str]:
        """Start a program of the store's folder; it ends with the test at the latest."""
        return subprocess.Popen(
            [sys.executable, "-c", BEGINNING + code, str(self.folder), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def assert_books_are_right(self, store: DiskStore) -> None:
        """Every table says the same about every record."""
        assert store._opened is not None
        index = store._opened.reader._index
        with store._opened.environment.reading() as txn:
            tables = {
                name: {bytes(key): bytes(value) for key, value in txn.cursor(db=table).iternext()}
                for name, table in (
                    ("records", index.records),
                    ("facts", index.facts),
                    ("ages", index.ages),
                    ("owned", index.owned),
                    ("expiry", index.expiry),
                    ("totals", index.totals),
                )
            }
        facts = {address: Facts.unpack(value) for address, value in tables["facts"].items()}
        assert tables["records"].keys() == facts.keys()
        deep = {
            address: (2**32 - 1 - one.depth).to_bytes(4, "big") + address
            for address, one in facts.items()
        }
        ranks = {
            address: int(one.used_s // 3600).to_bytes(8, "big") + deep[address]
            for address, one in facts.items()
        }
        assert tables["ages"].keys() == set(ranks.values())
        assert tables["owned"].keys() == {
            facts[address].namespace + rank for address, rank in ranks.items()
        }
        assert tables["expiry"].keys() == {
            one.expires_s.to_bytes(8, "big") + deep[address] for address, one in facts.items()
        }
        used: dict[bytes, int] = {}
        for address, one in facts.items():
            pages = -(-(len(tables["records"][address]) + 16) // 4096)
            assert one.taken_bytes == pages * 4096
            for name in (b"used", one.namespace):
                used[name] = used.get(name, 0) + one.taken_bytes
        totals = {
            name: int.from_bytes(value, "little")
            for name, value in tables["totals"].items()
            if name not in (b"form", b"seen")
        }
        assert totals == used


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path / "store")
    yield found
    for store in found.stores:
        store.close()


@pytest.fixture
def run() -> Iterator[Callable[[subprocess.Popen[str]], subprocess.Popen[str]]]:
    """Watch a program: it is ended with the test."""
    programs: list[subprocess.Popen[str]] = []

    def watch(program: subprocess.Popen[str]) -> subprocess.Popen[str]:
        programs.append(program)
        return program

    yield watch
    for program in programs:
        program.kill()
        program.communicate()
