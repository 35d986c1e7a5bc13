"""Which blocks are on the disk, and are they whole?

Reading takes one state of the store as it was when the call began, whatever is written meanwhile,
and waits for nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from itertools import repeat
from typing import TYPE_CHECKING, overload

from deepinfer_core.interfaces.kv_store import BlockGroup, Lent, Outcome
from deepinfer_core.interfaces.kv_upkeep import BlockFacts
from deepinfer_core.stores.calls import HIT, LATE, MISS, is_late
from deepinfer_core.stores.disk.environment import Environment, Unusable, as_unusable
from deepinfer_core.stores.disk.index import Facts, Index, address_of
from deepinfer_core.stores.disk.uses import Uses
from deepinfer_core.stores.record_reader import RecordReader

if TYPE_CHECKING:
    import lmdb

__all__ = ["Reader"]


class Reader:
    """What looks at a store.

    Args:
        environment: open.
        index: its tables.
        uses: notes which blocks were read; None: nobody does here.
    """

    def __init__(self, environment: Environment, index: Index, uses: Uses | None) -> None:
        self._environment, self._index, self._uses = environment, index, uses

    def find(self, group: BlockGroup, keys: Sequence[bytes], deadline_s: float) -> list[Outcome]:
        """Look blocks up in the index."""
        outcomes: list[Outcome] = []
        try:
            with self._environment.reading() as txn, as_unusable():
                for key in keys:
                    if is_late(deadline_s):
                        outcomes.append(LATE)
                        continue
                    facts = txn.get(address_of(group.name, key), db=self._index.facts)
                    outcomes.append(MISS if facts is None else HIT)
        except Unusable as error:
            outcomes += [_unavailable(error)] * (len(keys) - len(outcomes))
        return outcomes

    def load(
        self,
        group: BlockGroup,
        keys: Sequence[bytes],
        destinations: Sequence[bytearray | memoryview],
        deadline_s: float,
    ) -> list[Outcome]:
        """Copy blocks out of the map."""
        outcomes: list[Outcome] = []
        prefix = address_of(group.name, b"")
        addresses = [prefix + key for key in keys]
        uses, now_s = self._uses, self._uses.now_s() if self._uses else 0.0
        try:
            with self._environment.reading() as txn, as_unusable():
                found = map(txn.get, addresses, repeat(None), repeat(self._index.records))
                each = RecordReader(group).read_each(found, keys, destinations)
                for address, stored in zip(addresses, each, strict=True):
                    if stored is None:
                        outcomes.append(MISS)
                    elif isinstance(stored, Outcome):
                        outcomes.append(stored)
                    else:
                        outcomes.append(HIT)
                        if uses is not None:
                            uses.note_read(txn, address, stored, now_s)
                    if is_late(deadline_s):
                        outcomes += [LATE] * (len(keys) - len(outcomes))
                        break
        except Unusable as error:
            outcomes += [_unavailable(error)] * (len(keys) - len(outcomes))
        return outcomes

    def lend(
        self, stack: ExitStack, group: BlockGroup, keys: Sequence[bytes], deadline_s: float
    ) -> list[Lent]:
        """Show blocks in the map, which stays as it is until the stack is closed."""
        lent: list[Lent] = []
        records = RecordReader(group)
        try:
            txn = stack.enter_context(self._environment.reading())
            with as_unusable():
                for key in keys:
                    found = self._view(txn, records, address_of(group.name, key), key, deadline_s)
                    if isinstance(found, Outcome):
                        lent.append(Lent(outcome=found))
                    else:
                        lent.append(Lent(outcome=HIT, data=found))
        except Unusable as error:
            lent += [Lent(outcome=_unavailable(error))] * (len(keys) - len(lent))
        return lent

    def describe(self, group: BlockGroup, keys: Sequence[bytes]) -> list[BlockFacts | None]:
        """What the index says of blocks."""
        try:
            with self._environment.reading() as txn, as_unusable():
                return [
                    _block_facts(key, self._index.facts_of(txn, address_of(group.name, key)))
                    for key in keys
                ]
        except Unusable:
            return [None] * len(keys)

    def survey(self, group: BlockGroup, after: bytes, most: int) -> list[BlockFacts]:
        """Blocks of a group in the order of the index, those behind a key."""
        found: list[BlockFacts] = []
        first = address_of(group.name, b"")
        with suppress(Unusable), self._environment.reading() as txn, as_unusable():
            cursor = txn.cursor(db=self._index.facts)
            entries = cursor.iternext() if cursor.set_range(first + after) else ()
            for address, facts in entries:
                key = bytes(address)[len(first) :]
                if len(found) == most or not bytes(address).startswith(first):
                    break
                if key != after:
                    found.append(_block_facts(key, Facts.unpack(facts)))
        return found

    def sizes(self) -> tuple[int, int]:
        """Records, and bytes that they take.

        Raises:
            Unusable: nobody can tell.
        """
        with self._environment.reading() as txn, as_unusable():
            return self._index.count(txn), self._index.used_bytes(txn)

    def _view(
        self,
        txn: lmdb.Transaction[memoryview],
        records: RecordReader,
        address: bytes,
        key: bytes,
        deadline_s: float,
    ) -> memoryview | Outcome:
        """A block where it lies in the map, checked."""
        if is_late(deadline_s):
            return LATE
        record = self._index.record(txn, address)
        if record is None:
            return MISS
        [stored] = records.read_each((record,), (key,), (None,))
        if stored is None or isinstance(stored, Outcome):
            return stored or MISS
        if self._uses is not None:
            self._uses.note_read(txn, address, stored, self._uses.now_s())
        return records.block(record)


@overload
def _block_facts(key: bytes, facts: Facts) -> BlockFacts: ...
@overload
def _block_facts(key: bytes, facts: Facts | None) -> BlockFacts | None: ...
def _block_facts(key: bytes, facts: Facts | None) -> BlockFacts | None:
    if facts is None:
        return None
    return BlockFacts(
        key=key, namespace=facts.namespace, depth=facts.depth, retention=facts.retention
    )


def _unavailable(error: Unusable) -> Outcome:
    return Outcome(status="unavailable", reason=str(error))
