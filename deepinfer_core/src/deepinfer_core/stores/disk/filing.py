"""What does one transaction of the writer change in the tables?

Index entries of blocks that come are kept until the transaction ends, or until somebody has to see
them, and are then filed table by table in the order of their keys; totals are counted here and
written once.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deepinfer_core.interfaces.kv_store import StoreItem
from deepinfer_core.stores.disk.environment import Environment
from deepinfer_core.stores.disk.index import BYTES, SECONDS, Facts, Index
from deepinfer_core.stores.retention import Limits

if TYPE_CHECKING:
    import lmdb

__all__ = ["Filing", "filing"]

_RANK = struct.Struct(">QI")

_DEEPEST = (1 << 32) - 1


@contextmanager
def filing(
    environment: Environment, index: Index, limits: Limits, deadline_s: float
) -> Iterator[Filing]:
    """Change tables; all of it is committed at the end, or none.

    Raises:
        Unusable: as of ``Environment.writing``.
    """
    with environment.writing(deadline_s) as txn:
        found = Filing(index, limits, txn)
        yield found
        found.finish()


class Filing:
    """Changes of one transaction.

    Args:
        index: the tables.
        limits: whose ``age_step_s`` is ``AGE_STEP_S``.
        txn: writes.
    """

    def __init__(self, index: Index, limits: Limits, txn: lmdb.Transaction[bytes]) -> None:
        self._index, self._limits, self._txn = index, limits, txn
        self._coming: dict[bytes, Facts] = {}
        self._used_bytes: dict[bytes, int] = {}

    def used_bytes(self, namespace: bytes = b"") -> int:
        """What all records take, or those of a namespace."""
        found = self._used_bytes.get(namespace)
        if found is None:
            found = self._used_bytes[namespace] = self._index.used_bytes(self._txn, namespace)
        return found

    def record(self, address: bytes) -> memoryview | None:
        """A record; None if it is not there."""
        return self._index.record(self._txn, address)

    def add(self, address: bytes, record: memoryview, facts: Facts) -> None:
        """File a record that is not there, ``Index.in_front`` zeros in front of it."""
        self._txn.put(address, record, db=self._index.records)
        self._coming[address] = facts
        self._add_up(facts.namespace, facts.taken_bytes)

    def new_facts(self, item: StoreItem, retention: str, record_bytes: int, now_s: float) -> Facts:
        """Of a record that comes now."""
        return Facts(
            namespace=item.namespace,
            retention=retention,
            used_s=now_s,
            stored_s=now_s,
            expires_s=self._second(now_s, retention),
            depth=item.depth,
            taken_bytes=self._index.taken_bytes(record_bytes),
        )

    def remove(self, address: bytes) -> Facts | None:
        """Take a record out; what was filed of it, None if it is not there."""
        self._file_coming()
        txn, index = self._txn, self._index
        facts = index.facts_of(txn, address)
        if facts is None:
            return None
        self._leave(address, facts)
        txn.delete(address, db=index.facts)
        txn.delete(address, db=index.records)
        self._add_up(facts.namespace, -facts.taken_bytes)
        return facts

    def use(self, address: bytes, retention: str, now_s: float) -> bool:
        """Note a use, and a class that may keep the record longer; whether it is there."""
        facts = self._coming.get(address) or self._index.facts_of(self._txn, address)
        if facts is None:
            return False
        if self._index.is_use_due(facts, retention, now_s):
            self._file_coming()
            self._leave(address, facts)
            longer = self._limits.longer(facts.retention, retention or facts.retention)
            second = self._second(now_s, longer)
            self._enter({address: facts._replace(used_s=now_s, retention=longer, expires_s=second)})
        return True

    def going(self, wanted_bytes: int, young_from_s: float, owner: bytes) -> list[bytes]:
        """Addresses of the records that make room for so much, the first to go first.

        Args:
            wanted_bytes: fewer if only young records are left.
            young_from_s: records stored behind it stay.
            owner: a namespace; empty: any.
        """
        table = self._index.owned if owner else self._index.ages
        found: list[bytes] = []
        for entry, stored in self._from(table, owner):
            if wanted_bytes <= 0:
                break
            if SECONDS.unpack(stored)[0] <= young_from_s:
                found.append(entry[len(owner) + _RANK.size :])
                facts = self._index.facts_of(self._txn, found[-1])
                wanted_bytes -= facts.taken_bytes if facts else 0
        return found

    def expired(self, now_s: float, most: int) -> list[bytes]:
        """Addresses of records whose time is over, so many at most."""
        found: list[bytes] = []
        for entry, _ in self._from(self._index.expiry):
            if len(found) == most or _RANK.unpack_from(entry)[0] > now_s:
                break
            found.append(entry[_RANK.size :])
        return found

    def of_namespace(self, namespace: bytes | None, most: int) -> list[bytes]:
        """Addresses of records of a namespace, or of all, so many at most."""
        owner = namespace or b""
        table = self._index.owned if owner else self._index.ages
        found: list[bytes] = []
        for entry, _ in self._from(table, owner):
            if len(found) == most:
                break
            found.append(entry[len(owner) + _RANK.size :])
        return found

    def note_sweep(self, now_s: float) -> None:
        """Note a sweep."""
        self._txn.put(b"seen", SECONDS.pack(now_s), db=self._index.totals)

    def _from(self, table: lmdb._Database, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        self._file_coming()
        cursor = self._txn.cursor(db=table)
        if not cursor.set_range(prefix):
            return
        for entry, value in cursor.iternext():
            if not entry.startswith(prefix):
                return
            yield entry, value

    def finish(self) -> None:
        """File what is still to be filed; nothing follows."""
        self._file_coming()
        for name, total in self._used_bytes.items():
            if total:
                self._txn.put(name or b"used", BYTES.pack(total), db=self._index.totals)
            else:
                self._txn.delete(name or b"used", db=self._index.totals)

    def _file_coming(self) -> None:
        if self._coming:
            coming, self._coming = self._coming, {}
            self._enter(coming)

    def _enter(self, records: Mapping[bytes, Facts]) -> None:
        """File the entries of records, in order."""
        index = self._index
        facts, ages, owned, expiry = [], [], [], []
        for address, one in records.items():
            ranked, second = self._entries(address, one)
            stored = SECONDS.pack(one.stored_s)
            facts.append((address, one.pack()))
            ages.append((ranked, stored))
            owned.append((one.namespace + ranked, stored))
            expiry.append((second, b"\0"))
        for table, entries in (
            (index.facts, facts),
            (index.ages, ages),
            (index.owned, owned),
            (index.expiry, expiry),
        ):
            self._txn.cursor(db=table).putmulti(sorted(entries))

    def _leave(self, address: bytes, facts: Facts) -> None:
        ranked, second = self._entries(address, facts)
        self._txn.delete(ranked, db=self._index.ages)
        self._txn.delete(facts.namespace + ranked, db=self._index.owned)
        self._txn.delete(second, db=self._index.expiry)

    def _entries(self, address: bytes, facts: Facts) -> tuple[bytes, bytes]:
        """Keys of a record's entries; they follow from its facts and from constants alone."""
        step, inverted = self._limits.rank(facts.used_s, facts.depth)
        depth = _DEEPEST + inverted
        return _RANK.pack(step, depth) + address, _RANK.pack(facts.expires_s, depth) + address

    def _second(self, used_s: float, retention: str) -> int:
        return math.ceil(self._limits.expires_s(used_s, retention))

    def _add_up(self, namespace: bytes, size_bytes: int) -> None:
        for name in (b"", namespace):
            self._used_bytes[name] = self.used_bytes(name) + size_bytes
