"""Which records are on the disk, how much do they take, and which one goes next?

Tables, all in one file; numbers in keys are big-endian, so bytes sort like numbers::

    records   address -> record
    facts     address -> what decides when it goes
    ages      step of last use, inverted depth, address -> when it was stored
    owned     namespace, and the same
    expiry    second at which it expires, address -> nothing
    totals    "used", or a namespace -> bytes; "seen" -> second of the last sweep; "form"

An address is the name of the group, a zero byte and the key. A record and its entries in all tables
come and go in one transaction.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deepinfer_core.interfaces.kv_store import StoreItem
from deepinfer_core.stores.disk.environment import Environment, Unusable
from deepinfer_core.stores.retention import Limits

if TYPE_CHECKING:
    import lmdb

    AnyTransaction = lmdb.Transaction[bytes] | lmdb.Transaction[memoryview]

__all__ = ["AGE_STEP_S", "Facts", "Index", "address_of"]

AGE_STEP_S = 3600.0
"""Steps of ages; those on the disk were counted in it."""

_FACTS = struct.Struct("<32s16sddQIQ")
_RANK = struct.Struct(">QI")
_SECOND = struct.Struct(">Q")
_STORED = struct.Struct("<d")
_BYTES = struct.Struct("<Q")
_FORM = b"1"
"""Of these tables. Raise it when they change: what another form wrote is dropped."""

_DEEPEST = (1 << 32) - 1
_HEADER_OF_PAGES = 16
"""Bytes in front of a value that has pages of its own; from lmdb.h, PAGEHDRSZ."""

_TABLES = (b"records", b"facts", b"ages", b"owned", b"expiry", b"totals")


def address_of(group: str, key: bytes) -> bytes:
    """Where a block is filed."""
    return b"%s\0%s" % (group.encode(), key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What decides when a record goes.

    Attributes:
        namespace, depth: as of ``StoreItem``.
        retention: of all classes that its users named the one that keeps it longest.
        used_s: when its last use was noted; seconds since 1970, as all times here.
        stored_s: when it came.
        expires_s: a whole second.
        taken_bytes: whole pages.
    """

    namespace: bytes
    retention: str
    used_s: float
    stored_s: float
    expires_s: int
    depth: int
    taken_bytes: int

    def pack(self) -> bytes:
        """As they are filed."""
        return _FACTS.pack(
            self.namespace,
            self.retention.encode(),
            self.used_s,
            self.stored_s,
            self.expires_s,
            self.depth,
            self.taken_bytes,
        )

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> Facts:
        """What was filed."""
        namespace, retention, used_s, stored_s, expires_s, depth, taken_bytes = _FACTS.unpack(data)
        return cls(
            namespace=namespace,
            retention=retention.rstrip(b"\0").decode(),
            used_s=used_s,
            stored_s=stored_s,
            expires_s=expires_s,
            depth=depth,
            taken_bytes=taken_bytes,
        )


class Index:
    """The tables of one environment.

    Args:
        environment: open.
        limits: whose ``age_step_s`` is ``AGE_STEP_S``.
        writes: whether tables that are missing are made, and emptied if they are of another form.

    Raises:
        Unusable: tables are missing or of another form, and this process does not write.
    """

    def __init__(self, environment: Environment, limits: Limits, *, writes: bool) -> None:
        self._limits = limits
        self._page_bytes = environment.page_bytes
        if writes:
            with environment.writing(math.inf) as txn:
                tables = [environment.table(name, txn) for name in _TABLES]
                if txn.get(b"form", db=tables[-1]) != _FORM:
                    for table in tables:
                        txn.drop(table, delete=False)
                    txn.put(b"form", _FORM, db=tables[-1])
        else:
            tables = [environment.table(name, None) for name in _TABLES]
            with environment.reading() as view:
                form = view.get(b"form", db=tables[-1])
                if form is None or bytes(form) != _FORM:
                    raise Unusable("another version of the software wrote it")
        self.records, self.facts, self._ages, self._owned, self._expiry, self._totals = tables

    def taken_bytes(self, record_bytes: int) -> int:
        """What a record takes on the disk: whole pages."""
        return -(-(record_bytes + _HEADER_OF_PAGES) // self._page_bytes) * self._page_bytes

    def used_bytes(self, txn: AnyTransaction, namespace: bytes = b"") -> int:
        """What all records take, or those of a namespace."""
        found = txn.get(namespace or b"used", db=self._totals)
        return int(_BYTES.unpack(found)[0]) if found else 0

    def count(self, txn: lmdb.Transaction[memoryview]) -> int:
        """How many records there are."""
        return int(txn.stat(self.facts)["entries"])

    def facts_of(self, txn: AnyTransaction, address: bytes) -> Facts | None:
        """What decides when a record goes; None if it is not there."""
        found = txn.get(address, db=self.facts)
        return None if found is None else Facts.unpack(found)

    def add(
        self, txn: lmdb.Transaction[bytes], address: bytes, record: memoryview, facts: Facts
    ) -> None:
        """File a record that is not there."""
        txn.put(address, record, db=self.records)
        self._enter(txn, address, facts)
        self._add_up(txn, facts.namespace, facts.taken_bytes)

    def new_facts(self, item: StoreItem, retention: str, record_bytes: int, now_s: float) -> Facts:
        """Of a record that comes now."""
        return Facts(
            namespace=item.namespace,
            retention=retention,
            used_s=now_s,
            stored_s=now_s,
            expires_s=self._second(now_s, retention),
            depth=item.depth,
            taken_bytes=self.taken_bytes(record_bytes),
        )

    def remove(self, txn: lmdb.Transaction[bytes], address: bytes) -> int:
        """Take a record out; bytes that become free, 0 if it is not there."""
        facts = self.facts_of(txn, address)
        if facts is None:
            return 0
        self._leave(txn, address, facts)
        txn.delete(address, db=self.facts)
        txn.delete(address, db=self.records)
        self._add_up(txn, facts.namespace, -facts.taken_bytes)
        return facts.taken_bytes

    def use(
        self, txn: lmdb.Transaction[bytes], address: bytes, retention: str, now_s: float
    ) -> bool:
        """Note a use, and a class that may keep the record longer; whether it is there."""
        facts = self.facts_of(txn, address)
        if facts is None:
            return False
        if self.is_use_due(facts, retention, now_s):
            self._leave(txn, address, facts)
            longer = self._limits.longer(facts.retention, retention or facts.retention)
            second = self._second(now_s, longer)
            renewed = replace(facts, used_s=now_s, retention=longer, expires_s=second)
            self._enter(txn, address, renewed)
        return True

    def is_use_due(self, facts: Facts, retention: str, now_s: float) -> bool:
        """Whether a use now is noted."""
        longer = self._limits.longer(facts.retention, retention or facts.retention)
        return longer != facts.retention or self._limits.is_use_due(facts.used_s, longer, now_s)

    def going(
        self, txn: lmdb.Transaction[bytes], wanted_bytes: int, young_from_s: float, owner: bytes
    ) -> list[bytes]:
        """Addresses of the records that make room for so much, the first to go first.

        Args:
            txn: reads or writes.
            wanted_bytes: fewer if only young records are left.
            young_from_s: records stored behind it stay.
            owner: a namespace; empty: any.
        """
        table = self._owned if owner else self._ages
        found: list[bytes] = []
        for entry, stored in self._from(txn, table, owner):
            if wanted_bytes <= 0:
                break
            if _STORED.unpack(stored)[0] <= young_from_s:
                found.append(entry[len(owner) + _RANK.size :])
                facts = self.facts_of(txn, found[-1])
                wanted_bytes -= facts.taken_bytes if facts else 0
        return found

    def expired(self, txn: lmdb.Transaction[bytes], now_s: float, most: int) -> list[bytes]:
        """Addresses of records whose time is over, so many at most."""
        found: list[bytes] = []
        for entry, _ in self._from(txn, self._expiry):
            if len(found) == most or _SECOND.unpack_from(entry)[0] > now_s:
                break
            found.append(entry[_SECOND.size :])
        return found

    def of_namespace(
        self, txn: lmdb.Transaction[bytes], namespace: bytes | None, most: int
    ) -> list[bytes]:
        """Addresses of records of a namespace, or of all, so many at most."""
        owner = namespace or b""
        table = self._owned if owner else self._ages
        found: list[bytes] = []
        for entry, _ in self._from(txn, table, owner):
            if len(found) == most:
                break
            found.append(entry[len(owner) + _RANK.size :])
        return found

    def last_sweep_s(self, txn: lmdb.Transaction[memoryview]) -> float | None:
        """When the last sweep was noted; None: never."""
        found = txn.get(b"seen", db=self._totals)
        return None if found is None else float(_STORED.unpack(found)[0])

    def note_sweep(self, txn: lmdb.Transaction[bytes], now_s: float) -> None:
        """Note a sweep."""
        txn.put(b"seen", _STORED.pack(now_s), db=self._totals)

    def _from(
        self, txn: lmdb.Transaction[bytes], table: lmdb._Database, prefix: bytes = b""
    ) -> Iterator[tuple[bytes, bytes]]:
        cursor = txn.cursor(db=table)
        if not cursor.set_range(prefix):
            return
        for entry, value in cursor.iternext():
            if not entry.startswith(prefix):
                return
            yield entry, value

    def _enter(self, txn: lmdb.Transaction[bytes], address: bytes, facts: Facts) -> None:
        ranked, second = self._entries(address, facts)
        stored = _STORED.pack(facts.stored_s)
        txn.put(address, facts.pack(), db=self.facts)
        txn.put(ranked, stored, db=self._ages)
        txn.put(facts.namespace + ranked, stored, db=self._owned)
        txn.put(second, b"\0", db=self._expiry)

    def _leave(self, txn: lmdb.Transaction[bytes], address: bytes, facts: Facts) -> None:
        ranked, second = self._entries(address, facts)
        txn.delete(ranked, db=self._ages)
        txn.delete(facts.namespace + ranked, db=self._owned)
        txn.delete(second, db=self._expiry)

    def _entries(self, address: bytes, facts: Facts) -> tuple[bytes, bytes]:
        """Keys of a record's entries; they follow from its facts and from constants alone."""
        step, inverted = self._limits.rank(facts.used_s, facts.depth)
        ranked = _RANK.pack(step, _DEEPEST + inverted) + address
        return ranked, _SECOND.pack(facts.expires_s) + address

    def _second(self, used_s: float, retention: str) -> int:
        return math.ceil(self._limits.expires_s(used_s, retention))

    def _add_up(self, txn: lmdb.Transaction[bytes], namespace: bytes, size_bytes: int) -> None:
        for name in (b"used", namespace):
            total = self.used_bytes(txn, name) + size_bytes
            if total:
                txn.put(name, _BYTES.pack(total), db=self._totals)
            else:
                txn.delete(name, db=self._totals)
