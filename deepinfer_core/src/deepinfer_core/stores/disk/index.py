"""Which records are on the disk, how much do they take, and which one goes next?

Tables, all in one file; numbers in keys are big-endian, so bytes sort like numbers::

    records   address -> 48 zeros if they take no page more, record
    facts     address -> what decides when it goes
    ages      step of last use, inverted depth, address -> when it was stored
    owned     namespace, and the same
    expiry    second at which it expires, inverted depth, address -> nothing
    totals    "used", or a namespace -> bytes; "seen" -> second of the last sweep; "form"

An address is the name of the group, a zero byte and the key. A record and its entries in all tables
come and go in one transaction.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, NamedTuple

from deepinfer_core.stores.disk.environment import Environment, OtherForm, as_unusable
from deepinfer_core.stores.retention import Limits

if TYPE_CHECKING:
    import lmdb

    AnyTransaction = lmdb.Transaction[bytes] | lmdb.Transaction[memoryview]

__all__ = ["AGE_STEP_S", "Facts", "Index", "address_of"]

AGE_STEP_S = 3600.0
"""Steps of ages; those on the disk were counted in it."""

_FACTS = struct.Struct("<32s16sddQIQ")
SECONDS = struct.Struct("<d")
BYTES = struct.Struct("<Q")
_FORM = b"2"
"""Of these tables. Raise it when they change: what another form wrote is dropped."""

_HEADER_OF_PAGES = 16
"""Bytes in front of a value that has pages of its own; from lmdb.h, PAGEHDRSZ."""

_IN_FRONT = 48
"""Zeros in front of a record, with which its block begins on a cache line of the map: copying and
checking it is an eighth faster."""

_TABLES = (b"records", b"facts", b"ages", b"owned", b"expiry", b"totals")


def address_of(group: str, key: bytes) -> bytes:
    """Where a block is filed."""
    return b"%s\0%s" % (group.encode(), key)


class Facts(NamedTuple):
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
        namespace, retention, *rest = self
        return _FACTS.pack(namespace, retention.encode(), *rest)

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> Facts:
        """What was filed."""
        namespace, retention, *rest = _FACTS.unpack(data)
        return cls(namespace, retention.rstrip(b"\0").decode(), *rest)


class Index:
    """The tables of one environment, as readers see them; ``disk.filing`` changes them.

    Args:
        environment: open.
        limits: whose ``age_step_s`` is ``AGE_STEP_S``.
        writes: whether tables that are missing are made, and emptied if they are of another form.

    Raises:
        OtherForm: tables are of another form, and this process does not write.
        Unusable: they are missing, and it does not write.
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
            with environment.reading() as view, as_unusable():
                form = view.get(b"form", db=tables[-1])
                if form is None or bytes(form) != _FORM:
                    raise OtherForm("another version of the software wrote it")
        self.records, self.facts, self.ages, self.owned, self.expiry, self.totals = tables

    def in_front(self, record_bytes: int) -> int:
        """Zeros that are filed in front of a record."""
        with_zeros = self.taken_bytes(_IN_FRONT + record_bytes)
        return _IN_FRONT if with_zeros == self.taken_bytes(record_bytes) else 0

    def taken_bytes(self, record_bytes: int) -> int:
        """What a record takes on the disk: whole pages."""
        return -(-(record_bytes + _HEADER_OF_PAGES) // self._page_bytes) * self._page_bytes

    def used_bytes(self, txn: AnyTransaction, namespace: bytes = b"") -> int:
        """What all records take, or those of a namespace."""
        found = txn.get(namespace or b"used", db=self.totals)
        return int(BYTES.unpack(found)[0]) if found else 0

    def count(self, txn: lmdb.Transaction[memoryview]) -> int:
        """How many records there are."""
        return int(txn.stat(self.facts)["entries"])

    def record(self, txn: AnyTransaction, address: bytes) -> memoryview | None:
        """A record; None if it is not there."""
        found = txn.get(address, db=self.records)
        if found is None:
            return None
        # No record begins with a zero.
        return memoryview(found)[_IN_FRONT if found[:1] == b"\0" else 0 :]

    def facts_of(self, txn: AnyTransaction, address: bytes) -> Facts | None:
        """What decides when a record goes; None if it is not there."""
        found = txn.get(address, db=self.facts)
        return None if found is None else Facts.unpack(found)

    def is_use_due(self, facts: Facts, retention: str, now_s: float) -> bool:
        """Whether a use now is noted."""
        longer = self._limits.longer(facts.retention, retention or facts.retention)
        return longer != facts.retention or self._limits.is_use_due(facts.used_s, longer, now_s)

    def last_sweep_s(self, txn: lmdb.Transaction[memoryview]) -> float | None:
        """When the last sweep was noted; None: never."""
        found = txn.get(b"seen", db=self.totals)
        return None if found is None else float(SECONDS.unpack(found)[0])
